"""`rck bench`: the suite where the repository is, a clear word elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from redis_cluster_kit.cli.bench import repository
from redis_cluster_kit.testing import mutated_tree

from .conftest import Rck


async def test_the_suite_is_listed() -> None:
    answer = await Rck()("bench", "--list")
    assert answer.code == 0
    assert {"lanes", "takeover", "latency"} <= set(answer.out.split())
    assert (await Rck()("bench", "--list", "--json")).data == answer.out.split()
    assert (repository() / "benchmarks").is_dir()


async def test_what_is_asked_for_goes_to_the_suite() -> None:
    answer = await Rck().process("bench", "nosuch", "--json")
    assert answer.code == 2
    assert answer.data == {"benchmarks": ["nosuch"], "kept": False, "exit_code": 2}
    assert "unknown: nosuch" in answer.err


def test_where_there_is_no_suite_it_says_where_it_is(tmp_path: Path) -> None:
    """A copy of the package alone, as a wheel leaves it."""
    tree = mutated_tree(None, tmp_path)
    code = "from redis_cluster_kit.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, "bench"],
        env={"PYTHONPATH": str(tree), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("rck bench: the benchmarks are in the project's repository")
    assert "nox -s bench" in done.stderr
