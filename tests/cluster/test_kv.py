"""`cluster.kv`: shared by all pods, in the database and in Redis, and kept when Redis is wiped."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from redis_cluster_kit import Cluster, KeyValueSettings, PayloadTooLargeError, RedisSettings
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.redis_access import Keyspace

from .conftest import MakeCluster, quick


class Limits(msgspec.Struct):
    most: int = 10


async def test_every_pod_sees_the_same_values(make_cluster: MakeCluster) -> None:
    async with make_cluster() as first, make_cluster(hosting=False) as second:
        await first.kv.set("motd", b"hello")
        assert await second.kv.get("motd") == b"hello"
        limits = [pod.kv.prefix("config:").for_schema(Limits) for pod in (first, second)]
        assert await limits[0].modify("limits", lambda old: old or Limits()) == Limits()

        def more(old: Limits | None) -> Limits:
            assert old is not None
            return Limits(old.most + 1)

        await asyncio.gather(*(limits[turn % 2].modify("limits", more) for turn in range(10)))
        assert [await one.get("limits") for one in limits] == [Limits(20)] * 2
        assert (await first.kv.size(), await limits[1].size()) == (2, 1)


async def test_it_is_used_only_inside(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    with pytest.raises(RuntimeError, match="not entered"):
        _ = cluster.kv
    async with cluster:
        assert await cluster.kv.is_empty()


async def test_values_survive_a_wiped_redis(
    make_cluster: MakeCluster, private_valkey: RedisServer, namespace: str
) -> None:
    async with make_cluster(redis=private_valkey.url) as cluster:
        await cluster.kv.set("a", b"1")
        keyspace = Keyspace(namespace, 16)
        cached = [private_valkey.call("HGET", keyspace.values(place), "a") for place in range(16)]
        assert [value for value in cached if value is not None] == ["1"], "Redis is the cache"
        private_valkey.call("FLUSHALL")
        assert await cluster.kv.get("a") == b"1"
        assert await cluster.kv.modify("a", lambda value: (value or b"") + b"2") == b"12"


async def test_without_a_database_redis_alone_keeps_them(private_valkey: RedisServer, namespace: str) -> None:
    settings = quick(redis=RedisSettings(assume_weak_fences=True), key_value=KeyValueSettings(value_limit=10))
    async with Cluster(private_valkey.url, namespace=namespace, settings=settings) as cluster:
        await cluster.kv.set("a", b"1")
        assert await cluster.kv.get("a") == b"1"
        with pytest.raises(PayloadTooLargeError):
            await cluster.kv.set("a", b"x" * 11)
        await cluster.kv.clear()


async def test_namespaces_share_nothing(make_cluster: MakeCluster, namespace: str, valkey: Any) -> None:
    async with make_cluster() as cluster:
        other = Cluster(valkey.url, cluster._stores.database, namespace=f"{namespace}-2", settings=quick())
        async with other:
            await cluster.kv.set("a", b"1")
            assert await other.kv.is_empty()
            await other.kv.clear()
            assert await cluster.kv.get("a") == b"1"
