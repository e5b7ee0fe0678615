"""One real run of the demo, and its parts that need none."""

from __future__ import annotations

import dataclasses
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

from redis_cluster_kit.cli.demo.bank import Audit
from redis_cluster_kit.cli.demo.books import Reckoning
from redis_cluster_kit.cli.demo.figures import pace_now, quantile, whole_run
from redis_cluster_kit.cli.demo.promises import (
    Promise,
    audits,
    balance,
    fences,
    hand_off,
    none_of,
    one_effect,
    takeover,
    ticks,
)
from redis_cluster_kit.cli.demo.stage import show_promises
from redis_cluster_kit.cli.demo.view import Live, Plain, Scene
from redis_cluster_kit.cli.demo.watching import Ending, Grant, Spread, Stroke, unordered, waits
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.observe import ShardSight, Snapshot
from redis_cluster_kit.ownership import Installed
from redis_cluster_kit.runtime import LATENCY_BUCKETS
from redis_cluster_kit.storage import ClusterRecord
from redis_cluster_kit.testing import ChildEvent, Mutant, mutated_tree

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
    assert data["takeover_seconds"]["shards"] >= 33, "three pods share 100: each has 33 or 34"
    assert data["hand_off_seconds"]["shards"] >= 1
    assert data["lease_ttl"] == 1.0
    assert len(data["promises"]) == 9
    assert len({promise["promise"] for promise in data["promises"]}) == 9
    # The bank was busy all the time, its auditor too, whose leader was the one that was killed.
    assert data["transfers"]["acknowledged"] >= 100
    assert data["transfers"]["repeated"] >= 10
    assert data["messages"] >= 2 * data["transfers"]["acknowledged"] * 0.5
    assert data["audits"]["rounds"] >= 2
    assert data["audits"]["wrong"] == 0
    assert data["audit_gap_seconds"] > 0.2
    assert data["ticks"]["seconds"] == data["ticks"]["done"] >= 3
    assert data["delivery_seconds"]["p50"] <= data["delivery_seconds"]["p99"]
    assert data["kept"] == all(promise["kept"] for promise in data["promises"])
    # How long things took is the machine's affair; what fences and owners did is not.
    assert done.returncode == (0 if data["kept"] else 1)
    timed = [promise for promise in data["promises"] if promise["limit"] is not None]
    assert all(promise["measured"] is not None for promise in timed)
    assert all(promise["kept"] for promise in data["promises"] if promise["limit"] is None), data["promises"]
    assert not any(_is_alive(pod["pid"]) for pod in data["pods"])
    assert list(tmp_path.iterdir()) == []


GENEROUS = Mutant(
    name="every deposit is a little too high",
    file="redis_cluster_kit/cli/demo/bank.py",
    old="book.balance += amount",
    new="book.balance += amount + (number % 7 == 0)",
    invariant="the books balance",
    test="tests/demo/test_demo.py::test_books_that_do_not_balance_are_told_in_plain_text",
)


@pytest.mark.faults
def test_books_that_do_not_balance_are_told_in_plain_text(tmp_path: Path) -> None:
    """The shortest run, with a bank that gives money away: without a terminal and without a kill."""
    tree, folder = mutated_tree(GENEROUS, tmp_path / "tree"), tmp_path / "temporary"
    folder.mkdir()
    words = ("--seconds", "1", "--pods", "2", "--no-kill", "--rate", "200")
    done = demo(folder, *words, PYTHONPATH=str(tree))
    assert done.returncode == 1, done.stderr
    assert re.search(r"^BROKEN the books balance: .*account-\d+ holds ", done.stdout, re.MULTILINE)
    assert re.search(r"^BROKEN the auditor .* rounds found books that do not", done.stdout, re.MULTILINE)
    assert re.search(r"^kept   every acknowledged transfer has exactly one effect", done.stdout, re.MULTILINE)
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


def test_the_next_owner_is_the_one_with_the_next_fence() -> None:
    given = [Grant(1, "a", 1, 1), Grant(5, "a", 4, 2), Grant(9, "a", 7, 3), Grant(4, "b", 1, 2)]
    ends = [Ending("a", 1, 3.0), Ending("b", 1, 6.0), Ending("c", 1, 6.0)]
    assert waits(ends, given) == {ends[0]: 2.0}
    # The next owner told of its grant before the last one told of its loss: not the one after it.
    early = Ending("a", 1, 5.5)
    assert waits([early], given) == {early: 0.0}
    # A grant that was told of late, under the fence that ended, is nobody's take-over.
    late = Ending("a", 4, 4.5)
    assert waits([late], given) == {late: 4.5}
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
    unseen = [takeover(None, 0, 10), hand_off(None), fences([], [], 5)]
    unseen += [one_effect(None, []), balance(None), audits(Audit(), [], None)]
    unseen += [ticks([], 0), ticks([Stroke(7, 1, 1)], None)]
    assert not any(promise.kept for promise in unseen)


def test_the_bank_s_promises_are_broken_by_what_breaks_them() -> None:
    good = Reckoning(accounts=2, held=2_000, opened_with=2_000, acknowledged=5, repeated=1)
    assert one_effect(good, []).kept
    assert one_effect(good, []).seen.startswith("5 transfers, 1 of them asked for again")
    assert not one_effect(good, ["transfer 0: 5, then 6"]).kept
    assert not one_effect(dataclasses.replace(good, effects=["transfer 3: twice"]), []).kept
    assert not one_effect(dataclasses.replace(good, acknowledged=0), []).kept
    assert balance(good).kept
    assert not balance(dataclasses.replace(good, imbalance=["a holds 1"])).kept
    assert audits(Audit(rounds=3), [], True).kept
    assert not audits(Audit(rounds=3), [], False).kept
    assert not audits(Audit(rounds=3, wrong=1), [], None).kept
    assert not audits(Audit(rounds=3), ["version 3, then 2"], None).kept


def test_a_second_with_two_ticks_or_none_is_noticed() -> None:
    good = [Stroke(second, 1, 1 + second % 2) for second in range(100, 105)]
    assert ticks(good, 5) == Promise(
        "every second has one tick of the cron, whoever goes", True, "5 seconds, none missing, none twice"
    )
    assert ticks([*good, Stroke(102, 2, 2)], 5).seen.endswith(", 1 begun again")
    assert ticks([*good, Stroke(102, 1, 2)], 5).seen == "second 102 struck 2 times"
    assert ticks([*good, Stroke(106, 1, 2)], 6).seen == "1 seconds have none"
    assert ticks(good, 4).seen == "5 seconds were struck, 4 are done in the database"


def test_a_broken_promise_is_shown_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    show_promises([Promise("it holds", True, "so"), Promise("it is quick", False, "9 s", 9.0, 1.0)])
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "kept   it holds: so"
    assert out[1] == "BROKEN it is quick: 9 s (promised: 1 s)"
    assert out[3].startswith("A time was missed.")
    show_promises([Promise("it holds", False, "not so")])
    assert capsys.readouterr().out == "BROKEN it holds: not so\n"


def test_rates_are_made_of_the_last_two_seconds() -> None:
    pod: Any = SimpleNamespace(child=SimpleNamespace(events=told(10)))
    assert round(pace_now(pod).rate) == 10
    assert pace_now(SimpleNamespace(child=SimpleNamespace(events=told(10)[:1]))).rate == 0.0  # type: ignore[arg-type]
    assert pace_now(SimpleNamespace(child=SimpleNamespace(events=[]))).p99 is None  # type: ignore[arg-type]
    total, both = whole_run([pod, pod])
    assert (total, sum(both.latency)) == (30, 6)


def test_quantiles_are_within_their_bucket() -> None:
    buckets = [0] * (len(LATENCY_BUCKETS) + 1)
    assert quantile(buckets, 0.5) is None
    buckets[1], buckets[-1] = 99, 1
    assert quantile(buckets, 0.5) == pytest.approx(0.00075, abs=0.00001)
    assert quantile(buckets, 0.99) == pytest.approx(0.001)
    assert quantile(buckets, 1.0) == LATENCY_BUCKETS[-1]


# --- Its views ---


@pytest.fixture
def scene() -> Scene:
    def pod(number: int, state: str) -> Any:
        child = SimpleNamespace(pid=1000 + number, events=told(10 * number))
        return SimpleNamespace(
            name=f"pod-{number}", number=number, state=state, runner=f"r{number}", child=child
        )

    pods = SimpleNamespace(all=[pod(1, "killed"), pod(2, "serving")], by_runner=dict)
    pods.by_runner = lambda: {one.runner: one for one in pods.all}
    pods.serving = pods.all[1:]
    customers = SimpleNamespace(acknowledged=1_234, rate_now=400.4, underway=7)
    oversight = SimpleNamespace(waiting=12, audit=Audit(rounds=3, underway=56))
    owners = ["r1"] * 30 + ["r2"] * 29 + [None]
    shards = [
        ShardSight(ShardId("default", number), owner, Installed(number + 1, owner or "", None, {}))
        for number, owner in enumerate(owners)
    ]
    record = ClusterRecord(database_uuid="", layout_version=1, partitions=16, shard_counts={"default": 60})
    snapshot = Snapshot(record, {}, shards)
    watcher: Any = SimpleNamespace(latest=snapshot)
    return Scene(pods, watcher, customers, oversight)  # type: ignore[arg-type]


def told(rate: int) -> list[ChildEvent]:
    """What a pod tells of itself, four times in a second and a half."""
    return [
        ChildEvent(
            "figures",
            step / 2,
            {"commits": step * rate // 2, "fenced": 0, "entities": 5, "latency": [0, step, *[0] * 12]},
        )
        for step in range(4)
    ]


def test_the_plain_view(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    view = Plain()
    view.scene = scene
    view.say("look")
    out = capsys.readouterr().out
    assert "s] look" in out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.split()[:1]}
    assert rows["pod-1"] == ["pod-1", "1001", "killed", "30", "1-30", "0", "-", "-"]
    assert rows["pod-2"] == ["pod-2", "1002", "serving", "29", "31-59", "20", "0.8", "1.0", "auditor"]
    assert "20 messages/s, delivered in 0.8 ms (p50) and 1.0 ms (p99)" in out
    assert "12 messages in mailboxes, 0 writes fenced off" in out
    assert "1,234 transfers acknowledged, 400/s, 7 open" in out
    assert "clock: 0 seconds struck" in out
    assert "audit 3: 120 books, 56 on its way, every book adds up" in out
    assert "1" * 30 + "2" * 20 in out
    assert "2" * 9 + "·" in out


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (200, 50)])
@pytest.mark.parametrize("pods", [3, 21])
def test_the_picture_fits_the_terminal(scene: Scene, width: int, height: int, pods: int) -> None:
    crowd: Any = scene._pods
    first, second = crowd.all
    others = [SimpleNamespace(**{**vars(second), "name": f"pod-{n}"}) for n in range(2, pods + 1)]
    crowd.all = [first, *others]
    for pod in crowd.all:
        pod.child = SimpleNamespace(pid=4_194_304, events=told(12_345))
    written = io.StringIO()
    console = Console(file=written, width=width, height=height)
    view = Live(console)
    view.scene = scene
    console.print(view.picture())
    lines = written.getvalue().splitlines()
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    shown = [line.split() for line in lines if line.startswith("pod-")]
    assert all(len(row) >= 8 and row[1] == "4194304" for row in shown), "no column is cut"
    assert "…" not in written.getvalue()
    left_out = [line for line in lines if re.fullmatch(r"and \d+ more", line.strip())]
    assert len(shown) == pods or left_out == [f"and {pods - len(shown)} more"]
    assert len([line for line in lines if re.fullmatch(r"[12·]+", line)]) == (1 if width >= 100 else 2)


def test_the_live_view(scene: Scene) -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, color_system="standard", width=80, height=24)
    view = Live(console)
    view.say("before")
    console.print(view.picture())
    view.scene = scene
    view.say("what is told in more words than fit is continued " + "in the next line " * 3)
    console.print(view.picture())
    text = written.getvalue()
    assert re.search(r"^\[  0\.\d s\] before", text, re.MULTILINE)
    assert re.search(r"^ {10}(line|the|next|in) ", text, re.MULTILINE)
    assert "\x1b[36m1" in text
    assert "\x1b[35m2" in text
    assert "pod-2" in text
    assert "every book adds up" in text
