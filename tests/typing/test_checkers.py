"""mypy and pyright, both strict, on the examples: right code passes, each marked mistake is reported."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "typing"
POSITIVE = sorted(EXAMPLES.glob("*.py"))
NEGATIVE = sorted((EXAMPLES / "negative").glob("*.py"))
_MARK = re.compile(r"# error: ([a-z-]+), (report\w+)$")
_MYPY = re.compile(r"(?P<path>[^:]+):(?P<line>\d+): error: (?P<text>.*?)  \[(?P<code>[a-z-]+)\]")


class Finding(NamedTuple):
    """A reported mistake, without its text: texts change with each release of a checker."""

    file: str
    line: int
    code: str


Findings = dict[Finding, str]


def run(*command: str | Path) -> str:
    """Run a checker. Code 1 says that it found something, as it should."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, f"{command[0]} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def run_mypy(cache: Path) -> Findings:
    output = run("mypy", "--no-pretty", "--no-error-summary", "--cache-dir", cache, *POSITIVE, *NEGATIVE)
    found: Findings = {}
    for line in output.splitlines():
        if match := _MYPY.fullmatch(line):
            found[Finding(Path(match["path"]).name, int(match["line"]), match["code"])] = line
        else:
            assert ": note: " in line, f"mypy said something else: {line}"
    return found


def run_pyright(folder: Path) -> Findings:
    # In a folder of its own: pyright skips files that the project's settings exclude, even if they are named.
    shutil.copytree(EXAMPLES, folder / "examples", dirs_exist_ok=True)
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "include": ["examples"]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    output = run("pyright", "--project", folder, "--pythonpath", sys.executable, "--outputjson")
    items: list[dict[str, Any]] = json.loads(output)["generalDiagnostics"]
    return {
        Finding(
            Path(item["file"]).name, item["range"]["start"]["line"] + 1, item.get("rule", "syntax")
        ): item["message"]
        for item in items
    }


CHECKERS = ["mypy", "pyright"]
"""In the order of their codes in a mark."""


@pytest.fixture(scope="module", params=CHECKERS)
def checker(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


@pytest.fixture(scope="module")
def findings(checker: str, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Findings:
    if checker == "pyright":
        return run_pyright(tmp_path_factory.mktemp("pyright"))
    # Kept between runs, and mypy's own: others may be running mypy on the project's cache.
    cache = pytestconfig.cache
    assert cache is not None
    return run_mypy(cache.mkdir("examples-mypy"))


def marked(place: int) -> set[Finding]:
    """Return what the examples say a checker reports; `place`: 0 for mypy's codes, 1 for pyright's rules."""
    return {
        Finding(path.name, number, match.group(place + 1))
        for path in NEGATIVE
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (match := _MARK.search(line))
    }


def test_right_code_passes(findings: Findings) -> None:
    names = {path.name for path in POSITIVE}
    assert names
    assert [text for finding, text in findings.items() if finding.file in names] == []


def test_each_mistake_is_reported_and_nothing_else(checker: str, findings: Findings) -> None:
    """A checker may say more about a marked line, as pyright does of a class keyword, but not of others."""
    expected = marked(CHECKERS.index(checker))
    assert len(expected) > 20
    assert expected - findings.keys() == set()
    places = {(finding.file, finding.line) for finding in expected}
    elsewhere = [text for finding, text in findings.items() if (finding.file, finding.line) not in places]
    assert elsewhere == []


def test_every_mark_is_read() -> None:
    """A mark with a slip in it would otherwise just not count."""
    lines = [line for path in NEGATIVE for line in path.read_text().splitlines() if "# error" in line]
    assert [line for line in lines if not _MARK.search(line) and not line.startswith('"""')] == []
