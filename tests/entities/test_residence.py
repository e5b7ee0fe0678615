"""How long an entity stays in memory, and what an idle one leaves in Redis."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from redis_cluster_kit import Cluster, DedupeSettings, Entity, EntitySettings, Settings, rpc
from redis_cluster_kit.clock import MovableClock
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, host_of, keys_of, owns_all, quick, residents, traces_of

MINUTE = timedelta(minutes=1)


class Count(msgspec.Struct):
    number: int = 0


class Counter(Entity[Count], max_idle=10 * MINUTE):
    stopped: list[str]
    gate: asyncio.Event

    @rpc
    async def add(self) -> int:
        self.state.number += 1
        return self.state.number

    @rpc
    async def stay(self) -> None:
        self.keep_alive()

    @rpc
    async def hold(self) -> None:
        await Counter.gate.wait()

    async def on_stop(self) -> None:
        Counter.stopped.append(self.id)


class Brief(Counter, max_idle=MINUTE):
    pass


@pytest.fixture(autouse=True)
def fresh() -> None:
    Counter.stopped, Counter.gate = [], asyncio.Event()


class Moved:
    """A cluster and its clock."""

    def __init__(self, make: MakeCluster, settings: Settings | None = None) -> None:
        self.clock = MovableClock()
        self.cluster: Cluster = make(Counter, Brief, settings=settings or quick()).with_clock(self.clock)

    def advance(self, by: timedelta) -> None:
        self.clock.advance(by)
        host_of(self.cluster).clock_moved()


async def idle(cluster: Cluster, count: int) -> None:
    """Wait until so many entities are in memory with nothing to do."""
    await until(lambda: sum(one.is_idle for one in host_of(cluster).residents.of_type("Counter")) == count)


async def test_it_leaves_after_max_idle_and_comes_back_on_demand(make_cluster: MakeCluster) -> None:
    moved = Moved(make_cluster)
    async with moved.cluster as cluster:
        counter, brief = cluster.entity(Counter, "c"), cluster.entity(Brief, "b")
        await counter.add()
        await brief.add()
        await idle(cluster, 1)
        moved.advance(MINUTE / 2)
        assert residents(cluster) == 2
        moved.advance(MINUTE / 2)
        await until(lambda: residents(cluster) == 1)
        assert Counter.stopped == ["b"]
        moved.advance(10 * MINUTE)
        await until(lambda: residents(cluster) == 0)
        assert Counter.stopped == ["b", "c"]
        assert (await counter.add(), await brief.add()) == (2, 2)


async def test_keep_alive_begins_anew(make_cluster: MakeCluster) -> None:
    moved = Moved(make_cluster)
    async with moved.cluster as cluster:
        brief, other = cluster.entity(Brief, "b"), cluster.entity(Brief, "other")
        await brief.add()
        await other.add()
        moved.advance(MINUTE * 0.75)
        await brief.stay()
        moved.advance(MINUTE * 0.75)
        await until(lambda: residents(cluster) == 1)
        assert Counter.stopped == ["other"]


async def test_one_at_work_stays(make_cluster: MakeCluster) -> None:
    moved = Moved(make_cluster)
    async with moved.cluster as cluster:
        receipt = await cluster.entity(Brief, "b").hold.send()
        await until(lambda: residents(cluster) == 1)
        moved.advance(10 * MINUTE)
        Counter.gate.set()
        await receipt.result()
        assert Counter.stopped == []


async def test_the_longest_idle_goes_above_the_limit(make_cluster: MakeCluster) -> None:
    settings = quick(entities=EntitySettings(max_resident=3))
    async with make_cluster(Counter, settings=settings) as cluster:
        for place in range(6):
            await cluster.entity(Counter, str(place)).add()
            await idle(cluster, min(place + 1, 3))
        assert residents(cluster) == 3
        assert Counter.stopped == ["0", "1", "2"]
        assert await cluster.entity(Counter, "0").add() == 2


async def test_a_crowd_at_work_shrinks_to_the_limit_when_it_is_done(make_cluster: MakeCluster) -> None:
    """While all were busy none could go: whoever is idle first makes room then."""
    settings = quick(entities=EntitySettings(max_resident=3))
    async with make_cluster(Counter, settings=settings) as cluster:
        receipts = [await cluster.entity(Counter, str(place)).hold.send() for place in range(20)]
        await until(lambda: residents(cluster) == 20, what="all at work")
        Counter.gate.set()
        for receipt in receipts:
            await receipt.result()
        await until(lambda: residents(cluster) == 3, what="three left")
        await idle(cluster, 3)
        assert len(Counter.stopped) == 17
        assert [await cluster.entity(Counter, str(place)).add() for place in range(20)] == [1] * 20


async def test_an_idle_entity_leaves_only_its_state(make_cluster: MakeCluster, valkey: RedisServer) -> None:
    windows = DedupeSettings(generated=timedelta(seconds=2))
    moved = Moved(make_cluster, quick(dedupe=windows))
    async with moved.cluster as cluster:
        await cluster.entity(Brief, "b").add()
        assert traces_of(valkey, cluster, "Brief:b") >= {"entity", "mailbox"}
        moved.advance(2 * MINUTE)
        await until(lambda: residents(cluster) == 0)
        await until(lambda: traces_of(valkey, cluster, "Brief:b") == {"entity"}, every=0.05)
        assert await cluster.entity(Brief, "b").add() == 2


async def test_an_empty_mailbox_expires_though_nobody_passivates(
    make_cluster: MakeCluster, valkey: RedisServer
) -> None:
    """Its owner may be killed: what it leaves goes by itself. A mailbox with something in it never does."""
    async with make_cluster(Counter) as cluster:
        counter = cluster.entity(Counter, "c")
        mailbox = keys_of(cluster, Counter, "c").mailbox("Counter:c")
        await counter.add()
        assert 0 < int(str(valkey.call("PTTL", mailbox))) <= 60_000
        held = await counter.hold.send()
        assert valkey.call("PTTL", mailbox) == -1
        Counter.gate.set()
        await held.result()
        assert 0 < int(str(valkey.call("PTTL", mailbox))) <= 60_000
        valkey.call("DEL", mailbox)  # as if the minute were over
        assert await counter.add() == 2


async def test_messages_that_come_while_it_leaves_are_handled(make_cluster: MakeCluster) -> None:
    moved = Moved(make_cluster)
    async with moved.cluster as cluster:
        brief = cluster.entity(Brief, "b")
        for number in range(1, 40):
            receipt = await brief.add.send()
            moved.advance(2 * MINUTE)
            assert await receipt.result() == number


async def test_on_stop_runs_before_a_hand_off(make_cluster: MakeCluster) -> None:
    async with make_cluster(Counter) as first:
        await until(lambda: owns_all(first))
        names = [str(number) for number in range(12)]
        for name in names:
            await first.entity(Counter, name).add()
        async with make_cluster(Counter) as second:
            await until(lambda: owns_all(first, second))
            gone = [name for name in names if second.is_local(Counter, name)]
            assert gone
            assert sorted(Counter.stopped) == sorted(gone)
            assert [await second.entity(Counter, name).add() for name in gone] == [2] * len(gone)
