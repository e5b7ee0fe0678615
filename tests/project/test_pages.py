"""Generated pages equal their source, and no page names a file, a place or a test that is not there."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *DOCS.rglob("*.md"),
        *(ROOT / "lua").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(
    r"`((?:redis_cluster_kit|lua|tests|benchmarks|docs|examples|deploy|\.ci)/[\w./-]*|[\w./-]+\.(?:toml|yml|yaml|json|md|py|lua))`"
)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def _generate() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        spec.loader.exec_module(module)
    pages: dict[str, str] = module.pages()
    return pages


def _names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


@pytest.mark.parametrize("name", sorted(_generate()))
def test_generated_pages_equal_their_source(name: str) -> None:
    assert (DOCS / name).read_text() == _generate()[name], f"run `nox -s pages` to write docs/{name}"


@pytest.mark.parametrize("name", _names(PAGES))
def test_every_link_leads_somewhere(name: str) -> None:
    page = ROOT / name
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in LINK.findall(text):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{name} links to {target}"
        assert found.is_relative_to(ROOT), f"{name} links out of the project: {target}"
        if anchor and found.suffix == ".md":
            assert anchor in _anchors(found), f"{name} links to {target}"


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


STANDARDS = {"https://keepachangelog.com/en/1.1.0/", "https://semver.org/spec/v2.0.0.html"}
OTHERS = re.compile(
    r"https://(docs\.celeryq\.dev|arq-docs\.helpmanual\.io|taskiq-python\.github\.io|learn\.microsoft\.com/dotnet/orleans"
    r"|pekko\.apache\.org/docs|effect\.website/docs|docs\.(?:temporal\.io|restate\.dev|dbos\.dev|ray\.io)"
    r"|github\.com/(?:python-arq/arq|taskiq-python/taskiq-redis|chrisguidry/docket))(?:/|$)"
)
"""The documentation of the systems that the comparison speaks of, and what their maintainers say."""


def test_pages_link_to_few_places_outside() -> None:
    """What is outside may go away unseen: only standards, and the sources of the comparison."""
    comparison = DOCS / "explanation" / "comparison.md"
    outside = {page: _outside(page) for page in PAGES}
    assert all(OTHERS.match(target) for target in outside.pop(comparison))
    assert {target for targets in outside.values() for target in targets} == STANDARDS


def _outside(page: Path) -> set[str]:
    return {target for target in LINK.findall(page.read_text()) if "://" in target}


@pytest.mark.parametrize("name", _names(PAGES))
def test_every_path_named_exists(name: str) -> None:
    page = ROOT / name
    text = page.read_text()
    for path in PATH.findall(text):
        if f'title="{path}"' in text:
            continue  # a file that the page itself shows
        near = [ROOT / path, ROOT / "redis_cluster_kit" / path, page.parent / path]
        there = any(found.exists() for found in near)
        there = there or ("/" not in path and any(ROOT.glob(f"redis_cluster_kit/**/{path}")))
        assert there, f"{name} names {path}"


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert named == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


# --- The roadmap ---


def _rows() -> Iterator[tuple[str, str, str]]:
    """(number, state, proof) of every feature."""
    text = (DOCS / "roadmap.md").read_text()
    for line in re.findall(r"^\| [EOSC][0-9]+ \|.*$", text, re.MULTILINE):
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        yield cells[0], cells[-2], cells[-1]


def test_the_roadmap_has_every_feature_in_order() -> None:
    expected = [
        f"{part}{number}"
        for part, most in (("E", 14), ("O", 7), ("S", 11), ("C", 9))
        for number in range(1, most + 1)
    ]
    assert [number for number, _, _ in _rows()] == expected


def test_the_roadmap_claims_what_tests_prove() -> None:
    for number, state, proof in _rows():
        assert state in ("done", "partly", "not yet"), number
        assert bool(TEST.search(proof)) == (state != "not yet"), number
        assert ("missing:" in proof) == (state == "partly"), number


def test_every_test_named_exists() -> None:
    for page in PAGES:
        for path, name in TEST.findall(page.read_text()):
            assert name in _tests(ROOT / path), f"{page.name} names {path}::{name}"


@cache
def _tests(path: Path) -> set[str]:
    return {
        found.name
        for found in ast.parse(path.read_text()).body
        if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef)
    }
