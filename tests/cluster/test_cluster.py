"""A cluster's life: entered, shared, drained, left, entered again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from redis_cluster_kit import (
    Cluster,
    Entity,
    HealthReport,
    Registry,
    RunnerJoined,
    RunnerLeft,
    ShardGained,
    ShardId,
    ShardLost,
    rpc,
)
from redis_cluster_kit.embedded import RedisClusterServers, RedisServer
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, quick


class Account(Entity[None], name="account"):
    @rpc
    async def ping(self) -> str:
        return "pong"


class Invoice(Entity[None], name="invoice", shard_group="billing"):
    @rpc
    async def ping(self) -> str:
        return "pong"


def count(cluster: Cluster) -> int:
    runner = cluster._runner
    return 0 if runner is None or runner.ownership is None else len(runner.ownership.owned)


async def owns(cluster: Cluster, number: int) -> None:
    await until(lambda: count(cluster) == number, what=f"{number} shards owned")


async def test_two_runners_share_and_hand_off(make_cluster: MakeCluster) -> None:
    async with make_cluster(entities=[Account]) as first:
        await owns(first, 12)
        async with make_cluster(entities=[Account]) as second:
            await owns(second, 6)
            await owns(first, 6)
            names = [f"id-{number}" for number in range(40)]
            for name in names:
                owner = await first.owner_of(Account, name)
                assert owner == await second.owner_of(Account, name)
                assert owner in (first.runner_id, second.runner_id)
                assert first.is_local(Account, name) == (owner == first.runner_id)
            assert {first.is_local(Account, name) for name in names} == {True, False}
        await owns(first, 12)


async def test_on_every_server_and_database(redis_server: Any, database_url: str, namespace: str) -> None:
    def make() -> Cluster:
        return Cluster(redis_server.url, database_url, namespace=namespace, settings=quick())

    async with make() as first, make() as second:
        await owns(first, 6)
        await owns(second, 6)
        assert first.generate_id() != second.generate_id()
    assert isinstance(redis_server, RedisServer | RedisClusterServers)


async def test_it_may_be_entered_again(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    names = set()
    for _ in range(2):
        async with cluster:
            await owns(cluster, 12)
            names.add(cluster.runner_id)
    assert len(names) == 2
    with pytest.raises(RuntimeError, match="not entered"):
        _ = cluster.runner_id


def test_it_may_be_entered_again_on_another_loop(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()

    async def once() -> None:
        async with cluster:
            await owns(cluster, 12)

    anyio.run(once)
    anyio.run(once)


async def test_entering_twice_is_refused(make_cluster: MakeCluster) -> None:
    async with make_cluster() as cluster:
        with pytest.raises(RuntimeError, match="entered already"):
            await cluster.__aenter__()
        await owns(cluster, 12)


async def test_an_error_inside_comes_out_as_itself_and_the_shards_are_free(
    make_cluster: MakeCluster, valkey: RedisServer, namespace: str
) -> None:
    async def fail_inside() -> None:
        async with make_cluster() as cluster:
            await owns(cluster, 12)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_inside()
    assert valkey.call("KEYS", f"rck:{{{namespace}:*lease*") == []


async def test_a_cancelled_caller_still_leaves_in_order(
    make_cluster: MakeCluster, valkey: RedisServer, namespace: str
) -> None:
    cluster = make_cluster()
    with anyio.CancelScope() as scope:
        async with cluster:
            await owns(cluster, 12)
            scope.cancel()
            await anyio.sleep_forever()
    assert valkey.call("KEYS", f"rck:{{{namespace}:*lease*") == []
    assert valkey.call("EXISTS", f"rck:{{{namespace}:00}}:members") == 0


async def test_a_task_cancelled_while_joining_leaves_nothing(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(redis="redis://10.255.255.1:6379")
    task = asyncio.create_task(cluster.__aenter__())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert repr(cluster).endswith("not joined)")


async def test_a_runner_that_only_sends_owns_nothing(make_cluster: MakeCluster) -> None:
    async with make_cluster(entities=[Account]) as host, make_cluster(hosting=False) as client:
        await owns(host, 12)
        assert await client.owner_of(Account, "alice") == host.runner_id
        assert not client.is_local(Account, "alice")
        assert client.generate_id() > 0
        assert (await client.health()).ready
        assert client.runner_id not in (await until(lambda: host._runner)).membership.members


async def test_groups_have_shards_of_their_own(make_cluster: MakeCluster) -> None:
    registry = Registry()
    registry.entity(Invoice)
    async with make_cluster(entities=[Account], include=[registry]) as cluster:
        await owns(cluster, 24)
        assert cluster.shard_of(Invoice, "7").group == "billing"
        assert cluster.is_local(Invoice, "7")


def test_a_shard_is_known_before_joining(make_cluster: MakeCluster) -> None:
    cluster = Cluster("redis://nowhere", entities=[Account])
    assert cluster.shard_of(Account, "alice") == ShardId("default", 42)


async def test_registration_closes_on_entering(make_cluster: MakeCluster) -> None:
    async with make_cluster() as cluster:
        with pytest.raises(RuntimeError, match="too late"):
            cluster.include(Registry())


async def test_lifespan_provides_resources_until_the_end(make_cluster: MakeCluster) -> None:
    class Pool:
        is_open = True

    seen: list[Pool] = []

    @asynccontextmanager
    async def resources(cluster: Cluster) -> AsyncIterator[None]:
        pool = Pool()
        cluster.provide(Pool, pool)
        seen.append(pool)
        yield
        assert count(cluster) == 0, "left after the last shard"
        pool.is_open = False

    async with make_cluster(lifespan=resources) as cluster:
        await owns(cluster, 12)
        assert cluster.resource(Pool) is seen[0]
        assert cluster.resource(Pool).is_open
        with pytest.raises(LookupError, match="no resource dict"):
            cluster.resource(dict)
    assert not seen[0].is_open


async def test_events_tell_of_shards_and_runners(make_cluster: MakeCluster) -> None:
    seen: list[object] = []

    async def listen(cluster: Cluster, started: anyio.Event) -> None:
        events = cluster.events()
        started.set()
        async for event in events:  # one by one: the test looks at them meanwhile
            seen.append(event)  # noqa: PERF401

    async with anyio.create_task_group() as tasks, make_cluster() as first:
        started = anyio.Event()
        tasks.start_soon(listen, first, started)
        await started.wait()
        await owns(first, 12)
        async with make_cluster() as second:
            name = second.runner_id
            await owns(second, 6)
            await until(lambda: RunnerJoined(name) in seen)
        await owns(first, 12)
        await until(lambda: RunnerLeft(name) in seen)
    lost = [event for event in seen if isinstance(event, ShardLost)]
    assert len(lost) == 6 + 12
    assert all(event.was_clean for event in lost)
    gained = [
        event.fence for event in seen if isinstance(event, ShardGained) and event.shard == lost[0].shard
    ]
    assert gained == sorted(set(gained))


async def test_it_is_ready_with_its_shards_and_never_before(make_cluster: MakeCluster) -> None:
    """Before the first look at the members a runner has no share it could miss: that is no readiness."""
    seen: list[HealthReport] = []

    @asynccontextmanager
    async def lifespan(cluster: Cluster) -> AsyncIterator[None]:
        seen.append(await cluster.health())
        yield

    async with make_cluster(entities=[Account], lifespan=lifespan) as cluster:
        assert "the shards of this runner are not known yet" in seen[0].reasons
        assert not seen[0].ready
        while not seen[-1].ready:
            seen.append(await cluster.health())
        assert seen[-1].shards.owned == 12


async def test_draining_makes_it_unready_at_once(make_cluster: MakeCluster) -> None:
    async with make_cluster() as cluster:
        await owns(cluster, 12)
        assert (await cluster.health()).ready
        assert not cluster.is_shutting_down
        cluster.begin_drain()
        assert cluster.is_shutting_down
        report = await until(cluster.health)
        assert "draining" in report.reasons
        assert not report.ready
        assert report.live
        await owns(cluster, 0)
        await cluster.run_forever()


async def test_an_embedded_cluster_needs_nothing() -> None:
    async with Cluster.embedded(settings=quick()) as cluster:
        await owns(cluster, 12)
        assert (await cluster.health()).ready


async def test_an_embedded_cluster_with_a_folder_goes_on_where_it_was(tmp_path: Any) -> None:
    ids = set()
    for _ in range(2):
        async with Cluster.embedded(tmp_path / "kept", settings=quick()) as cluster:
            await owns(cluster, 12)
            ids.add(cluster.generate_id())
    assert len(ids) == 2


class Visits(Entity[list[int]], name="visits"):
    @rpc
    async def count(self) -> int:
        self.state.append(1)
        return len(self.state)


async def test_an_embedded_cluster_with_a_folder_keeps_what_its_redis_holds(tmp_path: Any) -> None:
    for expected in (1, 2):
        async with Cluster.embedded(tmp_path / "kept", settings=quick(), entities=[Visits]) as cluster:
            assert await cluster.entity(Visits, "a").count() == expected
