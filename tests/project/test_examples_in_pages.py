"""The programs shown in README and documentation run, and print what the pages say they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SHOWN = {
    "README.md": 1,
    "docs/how-to/connect.md": 2,
    "docs/how-to/production.md": 1,
    "docs/how-to/entities.md": 2,
    "docs/how-to/singleton.md": 1,
    "docs/how-to/cron.md": 1,
    "docs/how-to/durable-steps.md": 1,
    "docs/how-to/tls-and-acl.md": 1,
    "docs/how-to/upgrade.md": 1,
    "docs/how-to/dead-letters.md": 1,
    "docs/how-to/from-celery.md": 1,
    "docs/how-to/from-arq.md": 1,
}
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)


def _blocks() -> list[Any]:
    return [
        pytest.param(code, output, id=f"{name}-{place}")
        for name in SHOWN
        for place, (code, output) in enumerate(BLOCK.findall((ROOT / name).read_text()))
    ]


@pytest.mark.parametrize(("code", "output"), _blocks())
def test_a_program_prints_what_the_page_says(code: str, output: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(code)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == output


def test_every_program_is_found() -> None:
    assert {name: len(BLOCK.findall((ROOT / name).read_text())) for name in SHOWN} == SHOWN
    others = [path for path in (ROOT / "docs").rglob("*.md") if str(path.relative_to(ROOT)) not in SHOWN]
    unchecked = {path.name for path in others if "```python" in path.read_text()}
    with_own_test = {"fault-tests.md", "key-value.md", "kubernetes.md", "test-entities.md", "web-service.md"}
    with_own_test |= {"first-cluster.md"}  # played by test_tutorial.py
    assert unchecked == with_own_test


def test_the_readme_shows_the_two_commands_and_code_on_its_first_screen() -> None:
    screen = (ROOT / "README.md").read_text().splitlines()[:45]
    assert any(line.startswith("pip install 'nox[uv]' && nox -s demo") for line in screen)
    assert any(line.startswith("pip install 'nox[uv]' && nox -s tests") for line in screen)
    assert "```python" in screen
