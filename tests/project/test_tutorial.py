"""The tutorial, played as it stands: its files, its commands, and the output it shows."""

from __future__ import annotations

import re
from pathlib import Path

from redis_cluster_kit.embedded.redis_server import free_port

from .terminals import Play

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-cluster.md"


def test_the_tutorial_is_true(tmp_path: Path) -> None:
    play = Play(PAGE, tmp_path, {"6390": str(free_port())})
    play.run()
    assert len(play.known) == 14, "seven processes, each with its pid and its runner"
    assert sum(command == "python deposit.py" for command in play.commands) == 4
    rounds = {name: _rounds(play.terminals[name].printed) for name in ("pod one", "pod two")}
    together = sorted(rounds["pod one"] + rounds["pod two"])
    assert together == list(dict.fromkeys(together)), f"a round was counted twice: {rounds}"
    assert max(rounds["pod one"]) > min(rounds["pod two"]) == 1
    bells = [line for pod in rounds for line in play.terminals[pod].printed if line.startswith("bell ")]
    assert len(bells) >= 7
    assert len(set(bells)) == len(bells), f"a second rang twice: {bells}"


def _rounds(printed: list[str]) -> list[int]:
    return [int(found[1]) for line in printed if (found := re.fullmatch(r"round (\d+)", line))]
