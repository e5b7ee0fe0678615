"""The examples of the how-to run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "how-to"
BLOCK = re.compile(r'^```(?:python|ini) title="([a-z_]+\.(?:py|ini))"\n(.*?)^```$', re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("page", "expected"), [("fault-tests.md", 6), ("test-entities.md", 8)])
def test_every_example_runs(page: str, expected: int, tmp_path: Path) -> None:
    files = dict(BLOCK.findall((FOLDER / page).read_text()))
    files["pytest.ini"] = dict(BLOCK.findall((FOLDER / "test-entities.md").read_text()))["pytest.ini"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    tests = sum(text.count("def test_") for text in files.values())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:valkey"]
    done = subprocess.run(
        [*command, "-W", "error", "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert tests == expected
    assert f"{tests} passed in" in done.stdout
