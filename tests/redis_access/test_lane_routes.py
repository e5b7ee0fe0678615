"""Lanes in clusters, behind sentinels and behind an address that moves: commands follow their server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from redis_cluster_kit.embedded import RedisClusterServers, RedisServer, ReplicatedServers, SentinelServers
from redis_cluster_kit.errors import Execution, PersistenceFailedError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.redis_access import Keyspace, Lanes, RedisUrl
from redis_cluster_kit.settings import RedisSettings
from redis_cluster_kit.testing import Proxy, until


@pytest.fixture
def keyspace(namespace: str) -> Keyspace:
    return Keyspace(namespace, 16)


@pytest.fixture
async def lanes(valkey_cluster: RedisClusterServers) -> AsyncIterator[Lanes]:
    async with Lanes(RedisUrl.parse(valkey_cluster.url), RedisSettings()) as lanes:
        yield lanes


def _count(server: RedisServer, statistic: str) -> int:
    with server.connect() as client:
        found = client.info("commandstats").get(f"cmdstat_{statistic}", "calls=0,")
    return int(re.findall(r"calls=(\d+)", found)[0])


# --- Cluster ---


async def test_every_slot_is_found_and_the_routes_are_asked_for_once(
    valkey_cluster: RedisClusterServers, lanes: Lanes, keyspace: Keyspace
) -> None:
    def asked() -> int:
        return sum(_count(server, "cluster|slots") for server in valkey_cluster.servers)

    before = asked()
    shards = [ShardId("default", number) for number in range(200)]
    await asyncio.gather(
        *(
            lanes.call(keyspace.slot(shard), "SET", keyspace.lease(shard), str(shard), "PX", 60_000)
            for shard in shards
        )
    )
    values = await asyncio.gather(
        *(lanes.call(keyspace.slot(shard), "GET", keyspace.lease(shard)) for shard in shards)
    )
    assert values == [str(shard).encode() for shard in shards]
    assert asked() - before == 1
    for server in valkey_cluster.servers:
        listed = str(server.call("CLIENT", "LIST"))
        assert listed.count(" name=rck-command ") == 1


async def test_facts_about_servers_are_asked_of_each_master(
    valkey_cluster: RedisClusterServers, lanes: Lanes
) -> None:
    replies = await lanes.call_each_master("CONFIG", "GET", "port")
    assert sorted(int(reply[1]) for reply in replies) == sorted(
        server.port for server in valkey_cluster.servers
    )
    with pytest.raises(PersistenceFailedError, match="unknown command"):
        await lanes.call_each_master("NOSUCH")


async def test_seeds_that_are_down_are_passed_over(valkey_cluster: RedisClusterServers) -> None:
    url = f"redis+cluster://127.0.0.1:1,127.0.0.1:{valkey_cluster.servers[1].port}"
    async with Lanes(RedisUrl.parse(url), RedisSettings(), retry_for=0) as lanes:
        assert await lanes.call(0, "PING") == b"PONG"
    async with Lanes(
        RedisUrl.parse("redis+cluster://127.0.0.1:1,127.0.0.1:2"), RedisSettings(), retry_for=0
    ) as lanes:
        with pytest.raises(PersistenceFailedError, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2") as caught:
            await lanes.call(0, "PING")
    assert caught.value.execution is Execution.NOT_EXECUTED


async def test_a_single_server_is_no_cluster(valkey: RedisServer) -> None:
    async with Lanes(RedisUrl.parse(f"redis+cluster://127.0.0.1:{valkey.port}"), RedisSettings()) as lanes:
        with pytest.raises(PersistenceFailedError, match="cluster support disabled") as caught:
            await lanes.call(0, "PING")
    assert not caught.value.is_retryable


async def test_a_cluster_without_slots_is_waited_for() -> None:
    with RedisServer.start(cluster=True) as server:
        url = f"redis+cluster://127.0.0.1:{server.port}"
        async with Lanes(RedisUrl.parse(url), RedisSettings(), retry_for=0) as lanes:
            with pytest.raises(PersistenceFailedError, match="no server that holds slots"):
                await lanes.call(0, "PING")
        async with Lanes(RedisUrl.parse(url), RedisSettings()) as lanes:
            call = asyncio.ensure_future(lanes.call(0, "SET", "{06S}", "x", repeat=True))  # slot 0
            await asyncio.wait([call], timeout=0.02)
            assert not call.done()
            server.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            assert await call == b"OK"


class _Move:
    """A slot on its way from its master to another one."""

    def __init__(self, cluster: RedisClusterServers, slot: int) -> None:
        self.slot = slot
        self.source = next(server for server in cluster.servers if _owns(server, slot))
        self.target = next(server for server in cluster.servers if server is not self.source)
        self.others = [server for server in cluster.servers if server not in (self.source, self.target)]

    def begin(self) -> None:
        self._slot(self.target, "IMPORTING", self.source)
        self._slot(self.source, "MIGRATING", self.target)

    def move(self, key: str) -> None:
        self.source.call("MIGRATE", "127.0.0.1", self.target.port, key, 0, 5000)

    def finish(self) -> None:
        for server in (self.target, self.source, *self.others):
            self._slot(server, "NODE", self.target)

    def _slot(self, server: RedisServer, state: str, other: RedisServer) -> None:
        server.call("CLUSTER", "SETSLOT", self.slot, state, str(other.call("CLUSTER", "MYID")))


def _owns(server: RedisServer, slot: int) -> bool:
    return _owner(server, slot) == server.port


def _owner(server: RedisServer, slot: int) -> int:
    """The port of the master that this server takes for the slot's owner."""
    ranges: Any = server.call("CLUSTER", "SLOTS")
    return next(int(master[1]) for first, last, master, *_ in ranges if first <= slot <= last)


@pytest.fixture(scope="module")
def moving_cluster() -> Iterator[RedisClusterServers]:
    """A cluster whose slots may be moved: gossip can undo a way back, so the session's is left alone."""
    with RedisClusterServers.start() as cluster:
        yield cluster


async def test_commands_follow_a_slot_on_its_way_and_after(
    moving_cluster: RedisClusterServers, keyspace: Keyspace
) -> None:
    slot, here, there = keyspace.home_slot, keyspace.record, keyspace.born
    move = _Move(moving_cluster, slot)
    async with Lanes(RedisUrl.parse(moving_cluster.url), RedisSettings()) as lanes:
        await lanes.call(slot, "SET", here, "stays")
        move.begin()
        # ASK: a key that is not at the source any more, or not yet anywhere.
        replies = await asyncio.gather(*(lanes.call(slot, "INCR", there) for _ in range(50)))
        assert sorted(replies) == list(range(1, 51))
        assert _count(move.target, "asking") >= 50
        assert await lanes.call(slot, "GET", here) == b"stays"
        # TRYAGAIN: one key here and one there, until both are there.
        both = asyncio.ensure_future(lanes.call(slot, "MGET", here, there))
        await asyncio.wait([both], timeout=0.02)
        assert not both.done()
        move.move(here)
        assert await both == [b"stays", b"50"]
        # MOVED: the slot has arrived.
        before = _count(move.target, "get")
        move.finish()
        replies = await asyncio.gather(*(lanes.call(slot, "GET", here) for _ in range(50)))
        assert replies == [b"stays"] * 50
        assert _count(move.target, "get") - before == 50


async def test_a_moved_slot_is_followed_without_time_to_retry(
    moving_cluster: RedisClusterServers, keyspace: Keyspace
) -> None:
    slot = keyspace.home_slot
    url = RedisUrl.parse(moving_cluster.url)
    async with Lanes(url, RedisSettings()) as one, Lanes(url, RedisSettings(), retry_for=0) as other:
        assert await other.call(slot, "GET", keyspace.born) is None
        move = _Move(moving_cluster, slot)
        move.begin()
        move.finish()
        assert await one.call(slot, "INCR", keyspace.born) == 1
        assert await other.call(slot, "INCR", keyspace.born) == 2


# --- An address that moves ---


async def test_a_demoted_server_is_left_for_the_one_behind_its_address(namespace: str) -> None:
    with ReplicatedServers.start() as pair:
        async with (
            Proxy.to("127.0.0.1", pair.replica.port) as proxy,
            Lanes(RedisUrl.parse(proxy.url()), RedisSettings()) as lanes,
        ):
            assert await lanes.call(0, "GET", "x") is None
            calls = [asyncio.ensure_future(lanes.call(0, "INCR", "x")) for _ in range(20)]
            await asyncio.wait([*calls], timeout=0.02)
            assert not any(call.done() for call in calls)
            proxy.retarget("127.0.0.1", pair.primary.port)
            assert sorted(await asyncio.gather(*calls)) == list(range(1, 21))
            await until(lambda: proxy.connections == 1, what="the old connections to be closed")


# --- Sentinel ---


@pytest.mark.faults
async def test_commands_follow_a_failover() -> None:
    with SentinelServers.start() as servers:
        async with Lanes(RedisUrl.parse(servers.url), RedisSettings(), retry_for=20) as lanes:
            assert await lanes.call(7, "INCR", "x") == 1
            assert await lanes.call_each_master("ROLE") != []
            with servers.replica.connect() as replica:
                await until(lambda: replica.call("GET", "x") == "1", what="the replica to have it")
            servers.primary.kill()
            calls: list[Any] = [lanes.call(7, "INCR", "x", repeat=True) for _ in range(20)]
            assert max(await asyncio.gather(*calls)) == 21
            assert servers.replica.call("GET", "x") == "21"


async def test_a_sentinel_that_knows_no_such_master(valkey: RedisServer) -> None:
    with RedisServer.start(extra=("--sentinel",)) as sentinel:
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/nobody"
        async with Lanes(RedisUrl.parse(url), RedisSettings(), retry_for=0) as lanes:
            with pytest.raises(PersistenceFailedError, match="knows no master 'nobody'") as caught:
                await lanes.call(0, "PING")
    assert caught.value.execution is Execution.NOT_EXECUTED
