"""The examples of the how-to run as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "fault-tests.md"
BLOCK = re.compile(r'^```python title="([a-z_]+\.py)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)


def test_every_example_runs(tmp_path: Path) -> None:
    files = BLOCK.findall(PAGE.read_text())
    for name, text in files:
        (tmp_path / name).write_text(text)
    tests = sum(name.startswith("test_") for name, _ in files)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:valkey"]
    done = subprocess.run(
        [*command, "-W", "error", "-o", "anyio_mode=auto", "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert tests == 6
    assert f"{tests} passed in" in done.stdout
