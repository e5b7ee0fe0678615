"""The comparison with others: what cannot be measured is said, never left out silently or waited for."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import against_peers
from benchmarks.against_peers import Row
from benchmarks.peers import arrivals, environments, running
from benchmarks.peers.catalogue import OURS, PEERS, Does, Peer
from benchmarks.peers.environments import NotInstalledError

FOLDER = Path(running.__file__).parent
NOBODY = Peer("nobody", "nobody", ("no-such-library==1.*",), Does("after", "none", "none"))


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every installation fails."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def run(command: list[str], **options: Any) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="resolving\nno such package\n")

    monkeypatch.setattr(environments.subprocess, "run", run)


def test_every_peer_has_a_file_and_every_file_a_peer() -> None:
    of_the_frame = {"__init__", "__main__", "arrivals", "catalogue", "environments", "producing", "running"}
    files = {path.stem for path in FOLDER.glob("*.py")} - of_the_frame
    assert files == {peer.module for peer in PEERS}
    assert len({peer.title for peer in PEERS}) == len(PEERS)
    for name in files:
        text = (FOLDER / f"{name}.py").read_text()
        assert "def consume() -> None:" in text
        assert "def produce() -> None:" in text


def test_what_runs_beside_a_peer_imports_nothing_of_ours() -> None:
    """It is not installed there."""
    for path in FOLDER.glob("*.py"):
        if path.stem not in ("running", "environments", "catalogue"):
            assert "redis_cluster_kit" not in path.read_text(), path.name


@pytest.mark.usefixtures("refused")
def test_a_peer_that_cannot_be_installed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotInstalledError, match=r"^nobody cannot be installed: no such package$"):
        environments.environment(NOBODY)
    rows = against_peers.prepare(["arq"])
    assert [row.skipped for row in rows] == ["", "arq cannot be installed: no such package"]
    rows[0].rates.append(1_000.0)
    against_peers.report(rows)
    assert "arq                   arq cannot be installed: no such package" in capsys.readouterr().out
    assert "not measured" in rows[1].figures()["messages_per_second"]


@pytest.mark.usefixtures("refused")
def test_nobody_to_compare_with_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(row: Row, messages: int, stamps: int) -> None:
        row.rates.append(float(messages))

    monkeypatch.setattr(against_peers, "measure", measure)
    monkeypatch.setattr("sys.argv", ["against_peers", "arq"])
    assert against_peers.main() == 1
    assert "nothing to compare with" in capsys.readouterr().out


@pytest.mark.parametrize(("theirs", "exit_code"), [(1_000.0, 0), (1_001.0, 1)])
def test_less_than_three_times_the_best_is_a_broken_promise(
    theirs: float, exit_code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written: dict[str, Any] = {}

    def prepare(names: list[str]) -> list[Row]:
        return [Row("ours", OURS), Row("slow", NOBODY.does, NOBODY), Row("best", NOBODY.does, NOBODY)]

    def measure(row: Row, messages: int, stamps: int) -> None:
        row.rates.append({"ours": 3_000.0, "slow": 10.0, "best": theirs}[row.title])
        row.sender_us.append(1.0)

    monkeypatch.setattr(against_peers, "prepare", prepare)
    monkeypatch.setattr(against_peers, "measure", measure)
    monkeypatch.setattr(against_peers, "write_results", lambda name, found: written.update(found))
    monkeypatch.setattr("sys.argv", ["against_peers"])
    assert against_peers.main() == exit_code
    assert "× the best, best: " in capsys.readouterr().out
    assert list(written["charts"][0]["bars"]) == ["ours", "best", "slow"]


def test_arrivals_are_seen_once_and_the_first_time_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PEERS_FOLDER", str(tmp_path))
    seen = arrivals.Arrivals("run", 3)
    assert seen.missing() == 3
    first, second, third = (seen.message(number) for number in range(3))
    arrivals.arrive(first)
    arrivals.arrive(third)
    assert seen.missing() == 2
    noted = seen.times()[0]
    arrivals.arrive(first)
    assert seen.times()[0] == noted
    arrivals.arrive(second)
    assert seen.missing() == 0
    assert 90 <= len(str(first)) <= 130
