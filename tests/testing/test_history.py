"""Histories survive kills and merging, and pair what was asked for with what became of it."""

from __future__ import annotations

import math
import random
import threading
from pathlib import Path

import pytest

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.testing import ChildProcess, History, Recorder, until
from redis_cluster_kit.testing.checkers import Commit, Grant, OwnershipEvent, linearizable, ownership_spans

CHILD = """
import sys
from redis_cluster_kit.testing import Recorder, emit
recorder = Recorder(sys.argv[1])
number = 0
while True:
    number += 1
    with recorder.operation("send", {"number": number}) as outcome:
        if number == 50:
            emit("halfway")
        outcome.ok()
"""


def test_operations_are_paired_and_open_ends_stay_open(tmp_path: Path) -> None:
    before = Clock.boot()
    with Recorder(tmp_path / "a.jsonl") as recorder:
        with recorder.operation("send", {"to": "x"}, id="m1") as outcome:
            outcome.ok({"entry": 7})
        with recorder.operation("send", id="m2") as outcome:
            outcome.fail("full")
        with pytest.raises(TimeoutError), recorder.operation("send", id="m3"):
            raise TimeoutError
        recorder.record("send", "m4", "invoke", 4)
        recorder.note("seen", shard="s1")
    operations = History.load(tmp_path).operations("send")
    assert [(o.id, o.phase) for o in operations] == [
        ("m1", "ok"),
        ("m2", "fail"),
        ("m3", "info"),
        ("m4", "info"),
    ]
    first = operations[0]
    assert (first.process, first.argument, first.result) == ("a", {"to": "x"}, {"entry": 7})
    assert before < first.invoked_at <= first.completed_at < Clock.boot()
    assert [o.completed_at for o in operations[2:]] == [math.inf, math.inf]
    (seen,) = History.load(tmp_path).of("seen")
    assert (seen.phase, seen.value) == ("ok", {"shard": "s1"})


def test_files_merge_by_time_from_folders_and_single_files(tmp_path: Path) -> None:
    recorders = [Recorder(tmp_path / name / "x.jsonl", process=name) for name in ("b", "a")]
    for number in range(20):
        recorders[number % 2].note("n", number=number)
    for recorder in recorders:
        recorder.close()
        recorder.close()
    history = History.load(tmp_path / "a", tmp_path / "b" / "x.jsonl")
    assert [entry.value["number"] for entry in history.of("n")] == list(range(20))
    assert {entry.process for entry in history.entries} == {"a", "b"}


def test_threads_share_a_recorder(tmp_path: Path) -> None:
    with Recorder(tmp_path / "t.jsonl") as recorder:

        def many() -> None:
            for _ in range(100):
                recorder.note("n", filler="x" * 3000)

        threads = [threading.Thread(target=many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    history = History.load(tmp_path)
    assert len({entry.id for entry in history.of("n")}) == 400


async def test_a_killed_process_leaves_everything_it_wrote(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    async with ChildProcess(str(script), str(tmp_path / "child.jsonl")) as child:
        await child.wait_for("halfway")
        await child.kill()
    operations = History.load(tmp_path).operations("send")
    assert [o.argument["number"] for o in operations] == list(range(1, len(operations) + 1))
    assert len(operations) >= 50
    assert all(o.phase == "ok" for o in operations[:-1])
    assert operations[0].process == "child"


def test_a_torn_last_line_is_counted_and_a_damaged_one_raises(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with Recorder(path) as recorder:
        recorder.note("n")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    history = History.load(path)
    assert (len(history.entries), history.torn) == (1, 1)
    path.write_bytes(whole[:20] + b"\n" + whole)
    with pytest.raises(ValueError, match=r"in a.jsonl, line 1"):
        History.load(path)
    path.write_bytes(whole.replace(b'"ok"', b'"okay"'))
    with pytest.raises(ValueError, match="expected a phase"):
        History.load(path)


def test_two_beginnings_of_one_id_are_refused(tmp_path: Path) -> None:
    with Recorder(tmp_path / "a.jsonl") as recorder:
        for _ in range(2):
            recorder.record("send", "m", "invoke")
    with pytest.raises(ValueError, match="got two"):
        History.load(tmp_path).operations("send")


def test_rows_for_checkers_come_from_argument_result_and_time(tmp_path: Path) -> None:
    with Recorder(tmp_path / "pod-1.jsonl") as recorder:
        with recorder.operation("grant", {"shard": "s", "nonce": "n"}) as outcome:
            outcome.ok({"fence": 3})
        with recorder.operation("grant", {"shard": "s", "nonce": "n"}) as outcome:
            outcome.fail()
        recorder.note("commit", resource="s", fence=3, nonce="n", version=1, ignored=True)
        recorder.note("owner", shard="s", owner="pod-1", kind="granted", until=9e9)
    history = History.load(tmp_path)
    (grant,) = history.rows("grant", Grant)
    assert (grant.shard, grant.fence, grant.nonce) == ("s", 3, "n")
    assert grant.invoked_at <= grant.completed_at
    (commit,) = history.rows("commit", Commit)
    assert (commit.version, commit.completed_at) == (1, commit.invoked_at)
    (span,) = ownership_spans(history.rows("owner", OwnershipEvent))
    assert (span.owner, span.end) == ("pod-1", 9e9)


async def test_a_recorded_register_can_be_judged(tmp_path: Path) -> None:
    """A real variable, locked, behind two threads: linearizable; with one wrong read it is not."""
    value, lock = [0], threading.Lock()

    def work(name: str) -> None:
        draws = random.Random(name)
        with Recorder(tmp_path / f"{name}.jsonl") as recorder:
            for number in range(30):
                if draws.random() < 0.5:
                    with recorder.operation("read", {"key": "k"}) as outcome, lock:
                        outcome.ok(value[0])
                else:
                    new = int(name) * 1000 + number
                    with recorder.operation("write", {"key": "k", "value": new}) as outcome, lock:
                        value[0] = new
                        outcome.ok()

    threads = [threading.Thread(target=work, args=(name,)) for name in ("1", "2")]
    for thread in threads:
        thread.start()
    await until(lambda: not any(thread.is_alive() for thread in threads))
    operations = History.load(tmp_path).register_operations()
    linearizable(operations, initial=0).require(operations=60)
    with Recorder(tmp_path / "3.jsonl") as recorder, recorder.operation("read", {"key": "k"}) as outcome:
        outcome.ok(-1)
    assert linearizable(History.load(tmp_path).register_operations(), initial=0).violations
