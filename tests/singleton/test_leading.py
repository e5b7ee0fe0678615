"""One leader at a time: who it is, what it is told, what happens to its function, and who takes over."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import msgspec
import pytest

from redis_cluster_kit import (
    Cluster,
    ClusterContext,
    Registry,
    SingletonContext,
    Snowflake,
    current,
    within_cluster,
)
from redis_cluster_kit.errors import ClusterContextRequired
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, leads, led, quiet


class Progress(msgspec.Struct):
    seen: int = 0
    by: list[str] = []


def counting(names: Counter[str], **options: Any) -> Registry:
    """A singleton that counts in its state, and says in `names` who runs it."""
    registry = Registry()

    @registry.singleton("counter", state=Progress, **options)
    async def counter(ctx: SingletonContext[Progress]) -> None:
        async for _ in ctx.every(timedelta(milliseconds=20)):
            names[current().runner_id] += 1
            await ctx.update(seen=ctx.state.seen + 1)

    return registry


async def test_one_of_three_leads_and_a_takeover_goes_on_where_it_was(make_cluster: MakeCluster) -> None:
    names: Counter[str] = Counter()
    clusters = [make_cluster(include=[counting(names)]) for _ in range(3)]
    async with clusters[0], clusters[1], clusters[2]:
        await until(lambda: sum(names.values()) > 3, what="somebody works")
        await until(lambda: sum(led(cluster) for cluster in clusters) == 1, what="one leads")
        first = next(cluster for cluster in clusters if led(cluster))
        before = await first.singleton_state("counter", Progress, fresh=True)
        assert before is not None
        first.begin_drain()
        others = [cluster for cluster in clusters if cluster is not first]
        await until(lambda: sum(led(cluster) for cluster in others) == 1, what="another leads")
        assert not led(first)
        names.clear()
        await until(lambda: sum(names.values()) > 3, what="the next one works")
        assert set(names) == {next(one for one in others if led(one)).runner_id}
        for cluster in clusters:
            found = await cluster.singleton_state("counter", Progress, fresh=True)
            assert found is not None
            assert found.state.seen == found.version > before.version


async def test_another_pod_sees_state_with_version_and_age(make_cluster: MakeCluster) -> None:
    registry = Registry()

    @registry.singleton("once", state=Progress)
    async def once(ctx: SingletonContext[Progress]) -> None:
        await ctx.set(Progress(seen=7))

    async with make_cluster(include=[registry]) as cluster, make_cluster(hosting=False) as outside:
        assert await outside.singleton_state("nosuch", Progress) is None
        assert await outside.singleton_metadata("nosuch") is None
        for fresh in (False, True):
            found = await until(lambda fresh=fresh: outside.singleton_state("once", Progress, fresh=fresh))
            assert (found.state.seen, found.version, found.schema_version) == (7, 1, 1)
            assert timedelta() <= found.age < timedelta(seconds=30)

        async def noted() -> Any:
            metadata = await outside.singleton_metadata("once")
            return metadata is not None and metadata.run_count == 1 and metadata

        metadata = await until(noted, what="its run is noted")
        assert metadata.last_error is None
        assert abs(metadata.last_run - datetime.now(UTC)) < timedelta(minutes=1)
        assert (await outside.singleton_metadata("once", fresh=True)) == metadata
        assert led(cluster) == 1


async def test_inside_everything_knows_where_it_is(make_sqlite_cluster: MakeCluster) -> None:
    seen: dict[str, Any] = {}
    registry = Registry()

    async def become(ctx: SingletonContext[None]) -> None:
        seen["become"] = current()

    async def lose() -> None:
        seen["lose"] = current()

    @registry.singleton("here", on_become_leader=become, on_lose_leadership=lose)
    async def here(ctx: SingletonContext[None]) -> None:
        seen["main"] = current()
        seen["fence"], seen["id"], seen["name"] = ctx.fence, ctx.generate_id(), ctx.name
        seen["resource"], seen["state"] = ctx.resource(Progress), ctx.state
        with pytest.raises(TypeError, match="has no state"):
            await ctx.set(None)
        with within_cluster(entity_id="x") as inner:
            seen["inner"] = inner
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(child)

    async def child() -> None:
        seen["child"] = current()

    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def resources(cluster: Cluster) -> Any:
        cluster.provide(Progress, Progress(seen=3))
        yield

    async with make_sqlite_cluster(include=[registry], lifespan=resources) as cluster:
        await until(lambda: "child" in seen, what="it has run")
        await leads(cluster)
        assert seen["main"] == ClusterContext(
            shard_id=seen["main"].shard_id, runner_id=cluster.runner_id, is_leader=True, fence=seen["fence"]
        )
        assert seen["child"] == seen["become"] == seen["main"]
        assert seen["inner"].is_leader
        assert isinstance(seen["id"], Snowflake)
        assert (seen["name"], seen["resource"].seen, seen["state"]) == ("here", 3, None)
        with pytest.raises(ClusterContextRequired):
            current()
    assert seen["lose"] == seen["main"]


async def test_each_leadership_has_its_hooks_once(make_sqlite_cluster: MakeCluster) -> None:
    events: list[tuple[str, str]] = []
    registry = Registry()

    async def become(ctx: SingletonContext[Progress]) -> None:
        events.append(("become", current().runner_id))
        assert ctx.state.seen >= 0

    async def lose(ctx: SingletonContext[Progress]) -> None:
        events.append(("lose", current().runner_id))

    @registry.singleton("hooked", state=Progress, on_become_leader=become, on_lose_leadership=lose)
    async def hooked(ctx: SingletonContext[Progress]) -> None:
        events.append(("run", current().runner_id))
        if len(events) < 4:
            raise ValueError("on purpose")

    with quiet():
        for _ in range(2):
            async with make_sqlite_cluster(include=[registry]) as cluster:
                name = cluster.runner_id
                await until(lambda name=name: events.count(("run", name)) >= 1 and len(events) >= 4)
    first, second = (name for kind, name in events if kind == "become")
    assert [kind for kind, name in events if name == first] == ["become", "run", "run", "run", "lose"]
    assert [kind for kind, name in events if name == second] == ["become", "run", "lose"]


async def test_a_failing_hook_is_logged_and_the_function_runs(
    make_sqlite_cluster: MakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    ran = anyio.Event()
    registry = Registry()

    async def become() -> None:
        raise ValueError("cold")

    @registry.singleton("cold", on_become_leader=become)
    async def cold(ctx: SingletonContext[None]) -> None:
        assert ctx.metadata.last_error == "ValueError: cold"
        ran.set()

    async with make_sqlite_cluster(include=[registry]):
        await until(ran.is_set, what="it runs")
    assert "a hook of singleton cold failed" in caplog.text


@pytest.mark.parametrize("which", ["on_become_leader", "on_lose_leadership"])
async def test_a_hook_that_awaits_what_was_cancelled_has_failed_and_ends_nothing(
    make_sqlite_cluster: MakeCluster, caplog: pytest.LogCaptureFixture, which: str
) -> None:
    registry = Registry()

    async def hook() -> None:
        gone = asyncio.get_running_loop().create_future()
        gone.cancel()
        await gone

    hooks: dict[str, Any] = {which: hook}

    @registry.singleton("hooked", **hooks)
    async def hooked(ctx: SingletonContext[None]) -> None:
        await anyio.sleep_forever()

    async with make_sqlite_cluster(include=[registry]) as cluster:
        await leads(cluster)
        report = await until(lambda: _is_served(cluster, "hooked"), what="it is led, and goes on so")
        assert report
    assert "a hook of singleton hooked failed" in caplog.text


async def _is_served(cluster: Cluster, name: str) -> bool:
    return (await cluster.health()).singletons.get(name, "").startswith(("ok", "failing"))


async def test_one_that_raises_is_run_again_logged_and_counted(
    make_cluster: MakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[int] = []
    registry = Registry()

    @registry.singleton("shaky", state=Progress)
    async def shaky(ctx: SingletonContext[Progress]) -> None:
        runs.append(ctx.state.seen)
        await ctx.update(seen=ctx.state.seen + 1)
        if len(runs) < 3:
            raise ValueError(f"number {len(runs)}")

    async with make_cluster(include=[registry]) as cluster:
        await until(lambda: len(runs) == 3, what="the third run")
        assert runs == [0, 1, 2]
        host = cluster.joined_runner().host
        assert host is not None
        assert host.singletons.counters["shaky"].failures == 2

        async def noted() -> bool:
            metadata = await cluster.singleton_metadata("shaky", fresh=True)
            return metadata is not None and metadata.run_count == 3

        await until(noted, what="three executions noted")
        metadata = await cluster.singleton_metadata("shaky", fresh=True)
        assert metadata is not None
        assert metadata.last_error == "ValueError: number 2"
        assert (await cluster.health()).singletons == {"shaky": "ok"}
    records = [record for record in caplog.records if "shaky failed" in record.getMessage()]
    assert [str(record.exc_info[1]) for record in records if record.exc_info] == ["number 1", "number 2"]


async def test_a_failure_is_told_at_once(make_sqlite_cluster: MakeCluster) -> None:
    registry = Registry()

    @registry.singleton("broken")
    async def broken(ctx: SingletonContext[None]) -> None:
        raise ValueError("always")

    with quiet():
        async with make_sqlite_cluster(include=[registry]) as cluster:

            async def told() -> bool:
                metadata = await cluster.singleton_metadata("broken")
                return metadata is not None and metadata.last_error == "ValueError: always"

            await until(told, what="the error is noted")
            health = await cluster.health()
            assert health.singletons == {"broken": "failing: ValueError: always"}
            assert "singleton broken is failing: ValueError: always" in health.reasons
            assert health.ready


async def test_awaiting_what_somebody_cancelled_is_a_failure_and_no_silence(
    make_sqlite_cluster: MakeCluster,
) -> None:
    runs = 0
    registry = Registry()

    @registry.singleton("cancelled")
    async def cancelled(ctx: SingletonContext[None]) -> None:
        nonlocal runs
        runs += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    with quiet():
        async with make_sqlite_cluster(include=[registry]):
            await until(lambda: runs >= 2, what="it is run again")


async def test_one_that_returns_stays_owned_and_idle(make_sqlite_cluster: MakeCluster) -> None:
    runs: list[str] = []
    registry = Registry()

    @registry.singleton("short")
    async def short(ctx: SingletonContext[None]) -> None:
        runs.append(current().runner_id)

    async with make_sqlite_cluster(include=[registry]) as cluster:
        await until(lambda: bool(runs), what="it has run")
        await leads(cluster)

        async def counted() -> bool:
            metadata = await cluster.singleton_metadata("short")
            return metadata is not None and metadata.run_count == 1

        await until(counted, what="its run is noted")
        assert runs == [cluster.runner_id]
        assert (await cluster.health()).singletons == {"short": "ok"}


async def test_a_pod_without_it_never_leads(make_sqlite_cluster: MakeCluster) -> None:
    """However the shards fall: a newer pod serves eight singletons, the older ones none of them."""
    registry = Registry()
    led_by: dict[str, str] = {}
    for number in range(8):

        @registry.singleton(f"s{number}")
        async def lead(ctx: SingletonContext[None]) -> None:
            led_by[ctx.name] = current().runner_id

    older, newer = make_sqlite_cluster(), make_sqlite_cluster(include=[registry])
    async with older, make_sqlite_cluster(), newer:
        await until(lambda: len(led_by) == 8, what="all of them led")
        assert set(led_by.values()) == {newer.runner_id}


async def test_a_hand_off_cancels_the_function_and_waits_for_a_write(
    make_sqlite_cluster: MakeCluster,
) -> None:
    ended: list[str] = []
    registry = Registry()

    async def lose(ctx: SingletonContext[Progress]) -> None:
        await ctx.update(seen=100)
        ended.append("hook")

    @registry.singleton("long", state=Progress, on_lose_leadership=lose)
    async def long(ctx: SingletonContext[Progress]) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("function")

    async with make_sqlite_cluster(include=[registry]) as cluster:
        await leads(cluster)
    assert ended == ["function", "hook"]
    async with make_sqlite_cluster(hosting=False) as outside:
        found = await outside.singleton_state("long", Progress, fresh=True)
        assert found is not None
        assert found.state.seen == 100


async def test_a_hook_that_does_not_end_is_cut_short(
    make_sqlite_cluster: MakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    from redis_cluster_kit import DrainSettings

    from .conftest import quick

    registry = Registry()

    @registry.singleton("slow", on_lose_leadership=anyio.sleep_forever)
    async def slow(ctx: SingletonContext[None]) -> None: ...

    settings = quick(drain=DrainSettings(budget=timedelta(milliseconds=300)))
    async with make_sqlite_cluster(include=[registry], settings=settings) as cluster:
        await leads(cluster)
        counters = cluster.joined_runner().host.singletons.counters["slow"]  # type: ignore[union-attr]
    assert counters.errors == {"LeaderHandoffFailed": 1}
    assert "did not stop within the drain budget" in caplog.text


async def test_a_lost_lease_ends_it_with_its_hook_and_it_is_led_again(make_cluster: MakeCluster) -> None:
    fences: list[int] = []
    lost: list[int] = []
    registry = Registry()

    async def lose(ctx: SingletonContext[None]) -> None:
        lost.append(ctx.fence)

    @registry.singleton("again", on_lose_leadership=lose)
    async def again(ctx: SingletonContext[None]) -> None:
        fences.append(ctx.fence)
        await anyio.sleep_forever()

    async with make_cluster(include=[registry]) as cluster:
        await until(lambda: len(fences) == 1, what="it is led")
        runner = cluster.joined_runner()
        assert runner.ownership is not None
        for owned in list(runner.ownership.owned.values()):
            owned.lose("the test says so")
        await until(lambda: len(fences) == 2, what="it is led again")
        assert lost == fences[:1]
        assert fences[1] > fences[0]
