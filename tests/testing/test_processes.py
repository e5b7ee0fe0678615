"""Children are real processes: they say facts, obey signals, and do not outlive their test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.testing import ChildExitedError, ChildProcess, NoEventError, processes, until
from redis_cluster_kit.testing.forking import ForkServer
from redis_cluster_kit.testing.processes import process_state

TICKS = """
import asyncio, signal, threading
from redis_cluster_kit.testing import commands, emit

async def ticks():
    for number in range(100_000):
        emit("tick", number=number)
        await asyncio.sleep(0.002)

async def polite():
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    emit("ready")
    await over.wait()
    emit("drained", of=3)

async def echo():
    async for command in commands():
        emit("heard", command=command)

def threads():
    def many(name):
        for number in range(100):
            emit("line", name=name, number=number, filler="x" * 5000)
    running = [threading.Thread(target=many, args=(str(n),)) for n in range(4)]
    for thread in running: thread.start()
    for thread in running: thread.join()

async def talks():
    print("printed words")
    emit("said", shard=1)
    emit("said", shard=2)
    await asyncio.sleep(100)

def breaks():
    raise SystemExit("broken on purpose")

async def parent(script):
    from redis_cluster_kit.testing import ChildProcess
    async with ChildProcess(f"{script}:ticks") as child:
        await child.wait_for("tick")
        emit("grandchild", of=child.pid)
        await asyncio.sleep(100)

if __name__ == "__main__":
    import sys
    emit("main", arguments=sys.argv[1:])
    try:
        emit("bad", pid=1)
    except ValueError as error:
        emit("refused", text=str(error))
"""


@pytest.fixture(params=["started", "forked"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Children that are started anew, and such as are forked: nobody can tell them apart."""
    monkeypatch.setattr(processes, "forking", [])
    if request.param == "started":
        yield request.param
    else:
        with ForkServer():
            yield request.param


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "child_under_test.py"
    path.write_text(TICKS)
    return str(path)


async def test_a_script_and_a_module_run_as_main_with_their_arguments(script: str) -> None:
    folder, name = os.path.split(script)
    async with (
        ChildProcess(script, "a", "b") as by_path,
        ChildProcess(name.removesuffix(".py"), "c", pythonpath=[folder]) as by_name,
    ):
        assert (await by_path.wait_for("main"))["arguments"] == ["a", "b"]
        assert (await by_name.wait_for("main"))["arguments"] == ["c"]
        assert "got ['pid']" in (await by_name.wait_for("refused"))["text"]
        assert await by_path.wait() == await by_name.wait() == 0


async def test_events_come_with_fields_and_each_is_given_once(script: str) -> None:
    before = Clock.boot()
    async with ChildProcess(f"{script}:talks", name="talker") as child:
        second = await child.wait_for("said", shard=2)
        first = await child.wait_for("said")
        assert (first["shard"], second["shard"]) == (1, 2)
        assert before < first.t_boot <= second.t_boot < Clock.boot()
        assert first["pid"] == child.pid
        await until(lambda: "printed words" in child.tail)
        with pytest.raises(NoEventError, match=r"'said' from 'talker' within 0.02 s.*\n?.*printed words"):
            await child.wait_for("said", timeout=0.02)


async def test_an_event_before_a_time_does_not_count(script: str) -> None:
    async with ChildProcess(f"{script}:ticks") as child:
        await child.wait_for("tick", number=3)
        now = Clock.boot()
        late = await child.wait_for("tick", after=now)
        assert late.t_boot >= now
        assert late["number"] > 3
        chosen = await child.wait_for("tick", where=lambda e: e["number"] % 7 == 6)
        assert chosen["number"] == 6


async def test_lines_of_many_threads_stay_whole(script: str) -> None:
    async with ChildProcess(f"{script}:threads") as child:
        assert await child.wait() == 0
    lines = [(e["name"], e["number"]) for e in child.events if e.name == "line"]
    assert sorted(lines) == sorted((str(n), m) for n in range(4) for m in range(100))


async def test_a_stopped_child_does_nothing_until_it_is_woken(script: str) -> None:
    async with ChildProcess(f"{script}:ticks") as child:
        await child.wait_for("tick")
        stopped = await child.stop()
        assert child.state == "T"
        assert stopped.seen is not None
        until_then = stopped.seen + 0.05
        await until(lambda: Clock.boot() > until_then)
        woken = await child.wake()
        await child.wait_for("tick", after=woken.sent)
        assert not [e for e in child.events if stopped.seen < e.t_boot < woken.sent]
        assert [s.signal for s in child.signals] == [signal.SIGSTOP, signal.SIGCONT]


async def test_a_killed_child_is_dead_when_kill_returns_even_a_stopped_one(script: str) -> None:
    async with ChildProcess(f"{script}:ticks") as child:
        await child.wait_for("tick")
        await child.stop()
        record = await child.kill()
        assert child.returncode == -signal.SIGKILL
        assert record.seen is not None
        assert record.sent <= record.seen
        assert process_state(child.pid) == "gone"
        with pytest.raises(ChildExitedError, match="-9"):
            await child.stop()
        with pytest.raises(ChildExitedError):
            child.terminate()


async def test_a_terminated_child_may_end_politely(script: str) -> None:
    async with ChildProcess(f"{script}:polite") as child:
        await child.wait_for("ready")
        record = child.terminate()
        assert (await child.wait_for("drained", after=record.sent))["of"] == 3
        assert await child.wait() == 0


async def test_commands_reach_the_child(script: str) -> None:
    async with ChildProcess(f"{script}:echo") as child:
        await child.wait_for("started")
        for command in ({"a": [1, None]}, "ä\n", 7):
            await child.send(command)
            assert (await child.wait_for("heard"))["command"] == command


async def test_a_wait_on_a_child_that_fell_over_shows_why(script: str) -> None:
    async with ChildProcess(f"{script}:breaks", name="weak") as child:
        with pytest.raises(ChildExitedError, match=r"'ready' from 'weak'.*exited with 1") as caught:
            await child.wait_for("ready")
    assert "broken on purpose" in str(caught.value)


async def test_a_child_that_fell_over_unnoticed_fails_its_block(script: str) -> None:
    with pytest.raises(ChildExitedError, match="to live to the end of its block"):
        async with ChildProcess(f"{script}:breaks") as child:
            await until(lambda: child.returncode is not None)


async def test_a_child_dies_with_its_parent(script: str) -> None:
    async with ChildProcess(f"{script}:parent", script) as child:
        grandchild = int((await child.wait_for("grandchild"))["of"])
        assert process_state(grandchild) in {"S", "R"}
        await child.kill()
        await until(lambda: process_state(grandchild) in {"gone", "Z"}, what="the grandchild's death")


async def test_the_environment_is_the_tests_choice(tmp_path: Path) -> None:
    script = tmp_path / "env.py"
    script.write_text(
        "import os, sys\nfrom redis_cluster_kit.testing import emit\n"
        "emit('env', seed=os.environ['RCK_SEED'], cwd=os.getcwd(), path=sys.path[:2])\n"
    )
    first = tmp_path / "first"
    async with ChildProcess(str(script), env={"RCK_SEED": "5"}, pythonpath=[first], cwd=tmp_path) as child:
        event = await child.wait_for("env")
        assert (event["seed"], event["cwd"]) == ("5", str(tmp_path))
        assert str(first) in event["path"]
        await child.wait()


def is_forked(pid: int) -> bool:
    return b"import serve" in Path(f"/proc/{pid}/cmdline").read_bytes()


async def test_which_children_are_forked(script: str, way: str, tmp_path: Path) -> None:
    async with (
        ChildProcess(f"{script}:ticks") as child,
        ChildProcess(f"{script}:ticks", pythonpath=[tmp_path]) as other_kit,
        ChildProcess(f"{script}:ticks", env={"PYTHONHASHSEED": "1"}) as other_python,
    ):
        for each in (child, other_kit, other_python):
            await each.wait_for("tick")
            assert psutil.Process(each.pid).ppid() == os.getpid()
        assert is_forked(child.pid) == (way == "forked")
        assert not is_forked(other_kit.pid)
        assert not is_forked(other_python.pid)


async def test_forked_children_share_no_randomness(tmp_path: Path) -> None:
    script = tmp_path / "draws.py"
    script.write_text(
        "import random, uuid\nfrom redis_cluster_kit.testing import emit\n"
        "emit('drawn', number=random.random(), id=str(uuid.uuid4()))\n"
    )
    seen = set()
    for _ in range(3):
        async with ChildProcess(str(script)) as child:
            drawn = await child.wait_for("drawn")
            seen |= {drawn["number"], drawn["id"]}
            assert await child.wait() == 0
    assert len(seen) == 6
