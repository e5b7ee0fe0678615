"""One real run of the demo, and its parts that need none."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from rich.console import Console

from redis_cluster_kit.cli.demo.promises import Promise, fences, hand_off, none_of, takeover
from redis_cluster_kit.cli.demo.stage import sum_up
from redis_cluster_kit.cli.demo.view import Live, Plain, Scene
from redis_cluster_kit.cli.demo.watching import Grant, Spread, unordered, waits
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.observe import ShardSight, Snapshot
from redis_cluster_kit.ownership import Installed
from redis_cluster_kit.storage import ClusterRecord

COMMAND = (sys.executable, "-c", "from redis_cluster_kit.cli import main; main()", "demo")


def demo(tmp_path: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if name[:4] != "RCK_"}
    return subprocess.run(
        [*COMMAND, *words],
        env=plain | {"RCK_LEASE_TTL": "1s", "TMPDIR": str(tmp_path)} | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.faults
def test_it_kills_replaces_stops_and_keeps_what_it_promises(tmp_path: Path) -> None:
    done = demo(tmp_path, "--seconds", "1", "--json")
    assert done.stderr == ""
    data = json.loads(done.stdout)
    # Each fault happened: the pods' own exit codes and the shards they held say so.
    assert sorted(pod["state"] for pod in data["pods"]) == ["killed", "left", "left", "left"]
    assert data["takeover_seconds"]["shards"] >= 34
    assert data["hand_off_seconds"]["shards"] >= 1
    assert data["lease_ttl"] == 1.0
    assert len(data["promises"]) == 5
    assert len({promise["promise"] for promise in data["promises"]}) == 5
    assert data["kept"] == all(promise["kept"] for promise in data["promises"])
    # How long things took is the machine's affair; what fences and owners did is not.
    assert done.returncode == (0 if data["kept"] else 1)
    timed = [promise for promise in data["promises"] if promise["limit"] is not None]
    assert all(promise["measured"] is not None for promise in timed)
    assert all(promise["kept"] for promise in data["promises"] if promise["limit"] is None), data["promises"]
    assert not any(_is_alive(pod["pid"]) for pod in data["pods"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.faults
def test_without_a_terminal_and_without_a_kill(tmp_path: Path) -> None:
    done = demo(tmp_path, "--seconds", "1", "--pods", "2", "--no-kill")
    assert "\x1b" not in done.stdout
    assert "SIGKILL" not in done.stdout.partition("What you have just seen")[0]
    assert "2 pods share 100 shards" in done.stdout
    given = re.search(r"is told to go with SIGTERM: it gives its (\d+) shards away", done.stdout)
    assert given is not None
    assert int(given[1]) >= 50
    assert done.stdout.rstrip().splitlines()[-1].startswith("It took ")


def _is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


# --- Its judgement ---


def test_a_fence_that_does_not_grow_is_noticed() -> None:
    good = [Grant(1, "a", 1, 1), Grant(2, "a", 2, 2), Grant(1, "b", 9, 1)]
    assert unordered(good) == (1, [])
    assert unordered([*good, Grant(3, "a", 2, 3)]) == (2, ["a: 2 then 2"])
    assert unordered([*good, Grant(3, "b", 8, 3)]) == (2, ["b: 9 then 8"])


def test_waits_are_counted_to_the_next_grant() -> None:
    given = [Grant(1, "a", 1, 1), Grant(5, "a", 2, 2), Grant(9, "a", 3, 3), Grant(4, "b", 1, 2)]
    assert waits({"a": 3.0, "b": 6.0}, given) == {"a": 2.0}
    assert Spread.of([]) is None
    assert Spread.of([3, 1, 2]) == (3, 1, 2, 3)


def test_promises_are_broken_by_what_breaks_them() -> None:
    quick, slow = Spread(3, 0.1, 0.2, 0.3), Spread(3, 0.1, 0.2, 11.0)
    assert [takeover(quick, 0, 10).kept, takeover(slow, 0, 10).kept, takeover(quick, 1, 10).kept] == [
        True,
        False,
        False,
    ]
    assert [hand_off(quick).kept, hand_off(slow).kept] == [True, False]
    changed = [Grant(1, "a", 1, 1), Grant(2, "a", 2, 2)]
    assert fences(changed, [], 5) == Promise(
        "a shard's fence grows with every owner and never goes back", True, "1 changes of owner, 5 looks"
    )
    assert not fences(changed, ["a: 2 then 1"], 5).kept
    assert not fences([*changed, Grant(3, "a", 2, 3)], [], 5).kept
    assert none_of([], "it", "always").kept
    assert none_of(["pod-1"], "it", "always").seen == "not so: pod-1"


def test_what_was_not_seen_was_not_kept() -> None:
    assert not any(promise.kept for promise in (takeover(None, 0, 10), hand_off(None), fences([], [], 5)))


def test_a_broken_promise_is_shown_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    sum_up([Promise("it holds", True, "so"), Promise("it is quick", False, "9 s", 9.0, 1.0)], 3.0)
    out = capsys.readouterr().out.splitlines()
    assert out[1] == "kept   it holds: so"
    assert out[2] == "BROKEN it is quick: 9 s (promised: 1 s)"


# --- Its views ---


@pytest.fixture
def scene() -> Scene:
    def pod(number: int, state: str) -> Any:
        child = SimpleNamespace(pid=1000 + number)
        return SimpleNamespace(
            name=f"pod-{number}", number=number, state=state, runner=f"r{number}", child=child
        )

    pods = SimpleNamespace(all=[pod(1, "killed"), pod(2, "serving")], by_runner=dict)
    pods.by_runner = lambda: {one.runner: one for one in pods.all}
    owners = ["r1"] * 30 + ["r2"] * 29 + [None]
    shards = [
        ShardSight(ShardId("default", number), owner, Installed(number + 1, owner or "", None, {}))
        for number, owner in enumerate(owners)
    ]
    record = ClusterRecord(database_uuid="", layout_version=1, partitions=16, shard_counts={"default": 60})
    snapshot = Snapshot(record, {}, shards)
    return Scene(pods, lambda: snapshot)  # type: ignore[arg-type]


def test_the_plain_view(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    view = Plain()
    view.scene = scene
    view.say("look")
    out = capsys.readouterr().out
    assert "s] look" in out
    assert "pod-1  1001  killed       30  1-30" in out
    assert "1" * 30 + "2" * 20 in out
    assert "2" * 9 + "·" in out


def test_the_live_view(scene: Scene) -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, color_system="standard", width=80)
    view = Live(console)
    view.say("before")
    console.print(view.picture())
    view.scene = scene
    view.say("look")
    console.print(view.picture())
    text = written.getvalue()
    assert "s] look" in text
    assert "\x1b[36m1" in text
    assert "\x1b[35m2" in text
    assert "pod-2" in text
