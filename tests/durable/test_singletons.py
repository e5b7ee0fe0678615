"""Durable calls of singletons: kept until the next state write, the end of a round, or the function's end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import msgspec
import pytest

from redis_cluster_kit import Cluster, DurableSettings, Registry, SingletonContext
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, Rows, executions_of, quick

EVERY = timedelta(milliseconds=50)


class Progress(msgspec.Struct):
    last: int = 0
    seen: list[int] = []


class Batch(msgspec.Struct):
    items: list[int]
    last: int


class Notes:
    """What happened outside of the cluster."""

    def __init__(self) -> None:
        self.fetched: list[int] = []
        self.tokens: list[str] = []
        self.hold: anyio.Event | None = None
        self.raises: list[Exception] = []

    async def fetch(self, after: int) -> Batch:
        self.fetched.append(after)
        return Batch([after + 1, after + 2], after + 2)

    async def pause(self) -> None:
        if self.hold is not None:
            await self.hold.wait()
        if self.raises:
            raise self.raises.pop(0)


def registry(function: Callable[[SingletonContext[Progress]], Any]) -> Registry:
    made = Registry()
    made.singleton("coordinator", state=Progress)(function)
    return made


async def state_of(cluster: Cluster) -> Progress:
    found = await cluster.singleton_state("coordinator", Progress, fresh=True)
    return Progress() if found is None else found.state


async def test_the_coordinator_neither_loops_nor_repeats_a_step(
    make_cluster: MakeCluster, rows: Rows
) -> None:
    """Killed between its step and the write that makes it past: the next leader does not fetch again."""
    notes = Notes()

    async def coordinator(ctx: SingletonContext[Progress]) -> None:
        async for _ in ctx.every(EVERY):
            batch = await ctx.step("fetch", notes.fetch, ctx.state.last)
            await notes.pause()
            await ctx.update(last=batch.last, seen=[*ctx.state.seen, *batch.items])

    async with make_cluster(include=[registry(coordinator)]) as second:
        first_context = make_cluster(include=[registry(coordinator)])
        await until(lambda: len(notes.fetched) > 3, what="it works")
        notes.hold = anyio.Event()
        await until(lambda: rows.count("rck_step") == 1, what="a step is recorded, and nothing after it")
        fetched = list(notes.fetched)
        await second.joined_runner().kill()
        notes.hold = None
        async with first_context as first:
            await until(lambda: len(notes.fetched) > len(fetched) + 3, timeout=20, what="it goes on")
            state = await state_of(first)
    assert notes.fetched == list(range(0, notes.fetched[-1] + 1, 2))
    assert state.seen == list(range(1, len(state.seen) + 1))


async def test_a_round_without_a_write_is_past_when_it_ends(make_cluster: MakeCluster) -> None:
    results: list[int] = []

    async def count() -> int:
        return len(results)

    async def coordinator(ctx: SingletonContext[Progress]) -> None:
        async for _ in ctx.every(EVERY):
            results.append(await ctx.step("count", count))
            again = await ctx.step("count", count)
            assert again == results[-1]

    async with make_cluster(include=[registry(coordinator)]):
        await until(lambda: len(results) > 5, what="rounds")
    assert results == list(range(len(results)))


async def test_steps_of_a_run_that_raised_are_not_run_again(make_cluster: MakeCluster) -> None:
    notes = Notes()
    notes.raises = [ValueError("once"), ValueError("twice")]
    done = anyio.Event()

    async def coordinator(ctx: SingletonContext[Progress]) -> None:
        await ctx.step("fetch", notes.fetch, 0)
        await notes.pause()
        done.set()

    async with make_cluster(include=[registry(coordinator)]):
        with anyio.fail_after(10):
            await done.wait()
    assert notes.fetched == [0]


async def test_what_fails_too_often_is_set_aside_and_put_back_by_hand(
    make_cluster: MakeCluster, rows: Rows
) -> None:
    runs: list[str] = []
    broken = True

    async def fetch(number: int) -> int:
        runs.append(f"step of {number}")
        return number

    async def coordinator(ctx: SingletonContext[Progress]) -> None:
        number = await ctx.step("number", fetch, ctx.state.last)
        runs.append(f"ran {number}")
        if broken and not ctx.state.seen:
            raise ValueError("no good")
        await ctx.update(seen=[*ctx.state.seen, number])

    settings = quick(durable=DurableSettings(max_attempts=2, wake_poll=timedelta(milliseconds=100)))
    async with make_cluster(include=[registry(coordinator)], settings=settings) as cluster:

        async def is_aside() -> bool:
            return len(await cluster.executions.list()) >= 1

        await until(is_aside, timeout=10, what="set aside")
        (first, *_) = await cluster.executions.list()
        assert (first.singleton, first.failures, first.steps) == ("coordinator", 2, 1)
        assert first.error == "ValueError: no good"
        assert executions_of(cluster).counters.executions_aside >= 1
        await until(lambda: runs.count("step of 0") > 1, timeout=10, what="the next one begins")
        await until(lambda: executions_of(cluster).aside, timeout=10, what="it is counted")
        assert [reason for reason in (await cluster.health()).reasons if "set aside" in reason]
        assert await cluster.executions.drop(first.id)
        assert not await cluster.executions.drop(first.id)


async def test_what_was_set_aside_goes_on_when_the_open_one_has_ended(make_cluster: MakeCluster) -> None:
    ran: list[str] = []
    raises = [ValueError("first"), ValueError("second")]
    gate = anyio.Event()

    async def note(what: str) -> int:
        ran.append(what)
        return len(ran)

    async def coordinator(ctx: SingletonContext[Progress]) -> None:
        number = await ctx.step("note", note, "it")
        if raises:
            raise raises.pop(0)
        await gate.wait()
        await ctx.update(seen=[*ctx.state.seen, number])
        await ctx.sleep(timedelta(milliseconds=1))
        await anyio.sleep_forever() if len(ctx.state.seen) == 3 else ctx.state
        raise RuntimeError("once more")

    settings = quick(durable=DurableSettings(max_attempts=1))
    async with make_cluster(include=[registry(coordinator)], settings=settings) as cluster:

        async def two_are_aside() -> bool:
            return len(await cluster.executions.list()) == 2 and len(ran) == 3

        await until(two_are_aside, timeout=15, what="two are set aside, and a third waits")
        first, second = await cluster.executions.list()
        assert [call.name for call in await cluster.executions.recorded(first.id)] == ["note"]
        assert not await cluster.executions.retry("7.7@coordinator")
        assert not first.is_put_back
        assert await cluster.executions.retry(first.id)
        assert await cluster.executions.retry(first.id)
        with pytest.raises(RuntimeError, match=r"^execution 0\.0@coordinator was put back"):
            await cluster.executions.retry(second.id)
        assert [one.is_put_back for one in await cluster.executions.list()] == [True, False]
        gate.set()

        async def first_is_done() -> bool:
            return len((await state_of(cluster)).seen) == 2

        await until(first_is_done, timeout=15, what="the open one and then the first have ended")
        assert (await state_of(cluster)).seen == [3, 1]
        assert ran == ["it"] * 3


async def test_what_was_put_back_and_dropped_does_not_go_on(make_cluster: MakeCluster) -> None:
    ran: list[int] = []
    raises = [ValueError("broken")]
    gate = anyio.Event()

    async def note() -> int:
        ran.append(len(ran))
        return len(ran)

    async def coordinator(ctx: SingletonContext[Progress]) -> None:
        number = await ctx.step("note", note)
        if raises:
            raise raises.pop()
        await gate.wait()
        await ctx.update(seen=[*ctx.state.seen, number])

    settings = quick(durable=DurableSettings(max_attempts=1))
    async with make_cluster(include=[registry(coordinator)], settings=settings) as cluster:
        await until(lambda: len(ran) == 2, timeout=15, what="one is set aside, the next waits")
        (first,) = await cluster.executions.list()
        assert await cluster.executions.retry(first.id)
        assert await cluster.executions.drop(first.id)
        gate.set()

        async def is_done() -> bool:
            return (await state_of(cluster)).seen == [2]

        await until(is_done, timeout=15, what="the open one has ended")


async def test_another_input_sets_the_execution_aside_at_once(make_cluster: MakeCluster) -> None:
    numbers = iter(range(100))

    async def coordinator(ctx: SingletonContext[Progress]) -> None:
        await ctx.step("same", abs, next(numbers))
        await ctx.step("same", abs, next(numbers))

    async with make_cluster(include=[registry(coordinator)]) as cluster:

        async def is_aside() -> bool:
            return bool(await cluster.executions.list())

        await until(is_aside, timeout=10, what="set aside")
        (first, *_) = await cluster.executions.list()
        assert first.error.startswith("StepConflictError")
        assert first.failures == 1


async def test_a_sleep_goes_on_under_the_next_leader(make_cluster: MakeCluster, rows: Rows) -> None:
    slept: list[float] = []
    notes = Notes()

    async def coordinator(ctx: SingletonContext[Progress]) -> None:
        await ctx.step("fetch", notes.fetch, 0)
        await ctx.sleep(timedelta(seconds=3))
        slept.append(asyncio.get_running_loop().time())

    begun = asyncio.get_running_loop().time()
    async with make_cluster(include=[registry(coordinator)]):
        await until(lambda: rows.count("rck_step") == 2, what="it sleeps")
    async with make_cluster(include=[registry(coordinator)]):
        await until(lambda: bool(slept), timeout=10, what="the rest is slept")
    assert 2.9 < slept[0] - begun < 5.5
    assert notes.fetched == [0]


async def test_a_deferred_of_a_singleton_is_resolved_from_outside(make_cluster: MakeCluster) -> None:
    notes = Notes()
    answers: list[int] = []

    async def coordinator(ctx: SingletonContext[Progress]) -> None:
        answer = ctx.deferred("answer", int)
        notes.tokens.append(answer.token)
        answers.append(await answer)

    async with make_cluster(include=[registry(coordinator)]) as cluster:
        await until(lambda: bool(notes.tokens), what="it waits")
        assert await cluster.complete(notes.tokens[0], 42)
        await until(lambda: answers == [42], what="the answer")


@pytest.mark.parametrize("first", [True, False], ids=["its first call", "after a step"])
async def test_a_deferred_is_resolved_before_anybody_waits(make_cluster: MakeCluster, first: bool) -> None:
    """Also where nothing of the execution is recorded yet; and never after it has ended."""
    resolved: list[bool] = []
    tokens: list[str] = []
    done = anyio.Event()

    async def coordinator(ctx: SingletonContext[Progress]) -> None:
        if not first:
            await ctx.step("any", abs, 1)
        answer = ctx.deferred("answer", int)
        tokens.append(answer.token)
        resolved.append(await ctx.cluster.complete(answer.token, 42))
        resolved.append(await ctx.cluster.complete(answer.token, 43))
        assert await answer == 42
        await ctx.update(last=42)
        done.set()

    async with make_cluster(include=[registry(coordinator)]) as cluster:
        with anyio.fail_after(10):
            await done.wait()
        assert resolved == [True, False]
        assert not await cluster.complete(tokens[0], 44)


async def test_a_singleton_without_durable_calls_pays_nothing(make_cluster: MakeCluster, rows: Rows) -> None:
    async def coordinator(ctx: SingletonContext[Progress]) -> None:
        async for _ in ctx.every(EVERY):
            await ctx.update(last=ctx.state.last + 1)

    async with make_cluster(include=[registry(coordinator)]) as cluster:

        async def is_on() -> bool:
            return (await state_of(cluster)).last > 3

        await until(is_on, what="saves")
    for table in ("rck_singleton_round", "rck_execution", "rck_step"):
        assert rows.count(table) == 0


@pytest.mark.parametrize("what", ["step", "sleep", "deferred"])
async def test_without_a_database_durable_calls_say_what_they_need(
    make_cluster: MakeCluster, what: str
) -> None:
    said: list[str] = []

    async def coordinator(ctx: SingletonContext[Progress]) -> None:
        try:
            if what == "step":
                await ctx.step("a", len, "abc")
            elif what == "sleep":
                await ctx.sleep(timedelta(seconds=1))
            else:
                ctx.deferred("a", int)
        except Exception as error:
            said.append(str(error))

    options: dict[str, Any] = {"database": None}
    from redis_cluster_kit import RedisSettings

    settings = quick(redis=RedisSettings(assume_weak_fences=True))
    async with make_cluster(include=[registry(coordinator)], settings=settings, **options):
        await until(lambda: bool(said), what="it says so")
    assert "need a database" in said[0]
