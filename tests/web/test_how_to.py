"""The examples of the how-to pages run as they stand there, or are files that other tests run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "how-to"
BLOCK = re.compile(r'^```python title="([a-z_]+\.py)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
EXAMPLE = re.compile(r'^```python title="examples/web/([a-z_]+\.py)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("page", "tests"), [("kubernetes", 2), ("key-value", 3)])
def test_every_example_runs(page: str, tests: int, tmp_path: Path) -> None:
    files = BLOCK.findall((PAGES / f"{page}.md").read_text())
    for name, text in files:
        (tmp_path / name).write_text(text)
    for name, _ in files:  # those that are no tests run too
        subprocess.run([sys.executable, name], cwd=tmp_path, check=True, timeout=60)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:valkey"]
    done = subprocess.run(
        [*command, "-W", "error", "-o", "anyio_mode=auto", "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(name.startswith("test_") for name, _ in files) == tests
    assert f"{tests} passed in" in done.stdout


def test_the_page_on_services_shows_the_examples_as_they_are() -> None:
    shown = dict(EXAMPLE.findall((PAGES / "web-service.md").read_text()))
    folder = ROOT / "examples" / "web"
    assert set(shown) == {path.name for path in folder.glob("*.py")} - {"__init__.py"}
    for name, text in shown.items():
        assert text == (folder / name).read_text(), f"web-service.md shows another examples/web/{name}"
