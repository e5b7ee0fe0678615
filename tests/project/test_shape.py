"""The shape the code keeps: short files and functions, modules that say what for, one word for one thing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path
    for folder in ("redis_cluster_kit", "tests", "benchmarks", "docs", "examples", "deploy")
    for path in (ROOT / folder).rglob("*.py")
)
PACKAGE = [path for path in FILES if path.is_relative_to(ROOT / "redis_cluster_kit")]
# The glossary of CONTRIBUTING.md has other words for these.
BANNED = re.compile(r"(?<![a-z])(worker|job|manager|util|helper)s?(?![a-z])")


def _words(name: str) -> str:
    """`LeaseManager` and `lease_manager` alike as `lease manager`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).replace("_", " ").lower()


def _functions(path: Path) -> Iterator[tuple[str, int]]:
    for found in ast.walk(ast.parse(path.read_text())):
        if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
            assert found.end_lineno is not None
            yield f"{path.relative_to(ROOT)}:{found.lineno} {found.name}", found.end_lineno - found.lineno + 1


def test_no_file_is_longer_than_500_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert len(lengths) > 100
    assert {name: length for name, length in lengths.items() if length > 500} == {}


def test_functions_are_short() -> None:
    lengths = [found for path in PACKAGE for found in _functions(path)]
    assert len(lengths) > 500
    assert [found for found in lengths if found[1] > 80] == []
    longer = sorted((found for found in lengths if found[1] > 35), key=lambda found: -found[1])
    assert len(longer) <= 0.05 * len(lengths), f"{len(longer)} of {len(lengths)} are over 35 lines: {longer}"


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in FILES
        if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert silent == []


@pytest.mark.parametrize("name", ["LeaseManager", "job_queue", "utils", "run_jobs"])
def test_the_check_of_words_finds_what_it_looks_for(name: str) -> None:
    assert BANNED.search(_words(name))


def test_one_word_for_one_thing() -> None:
    named = {str(path.relative_to(ROOT)): _words(path.stem) for path in PACKAGE}
    for path in PACKAGE:
        for found in ast.walk(ast.parse(path.read_text())):
            if isinstance(found, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                named[f"{path.relative_to(ROOT)}:{found.lineno} {found.name}"] = _words(found.name)
    assert [place for place, words in named.items() if BANNED.search(words)] == []
