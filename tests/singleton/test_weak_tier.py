"""Without a database: state in Redis alone, fenced and versioned all the same."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import msgspec

from redis_cluster_kit import Cluster, RedisSettings, Registry, SingletonContext
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import until

from .conftest import leads, quick, quiet


class Progress(msgspec.Struct):
    seen: int = 0


def weak(valkey: RedisServer, namespace: str, **options: Any) -> Cluster:
    settings = quick(redis=RedisSettings(assume_weak_fences=True))
    return Cluster(valkey.url, namespace=namespace, settings=settings, **options)


async def test_a_takeover_goes_on_where_it_was(valkey: RedisServer, namespace: str) -> None:
    found: list[int] = []
    registry = Registry()

    @registry.singleton("s", state=Progress)
    async def s(ctx: SingletonContext[Progress]) -> None:
        found.append(ctx.state.seen)
        for _ in range(3):
            await ctx.update(seen=ctx.state.seen + 1)

    for _ in range(2):
        async with weak(valkey, namespace, include=[registry]) as cluster:
            await leads(cluster)

            async def counted() -> bool:
                metadata = await cluster.singleton_metadata("s", fresh=True)
                return metadata is not None and metadata.run_count == 3 * len(found)

            await until(counted, what="its runs are noted")
            state = await cluster.singleton_state("s", Progress, fresh=True)
            assert state is not None
            assert (state.state.seen, state.version) == (3 * len(found), 3 * len(found))
    assert found == [0, 3]


async def test_what_cannot_be_decoded_is_kept_aside(valkey: RedisServer, namespace: str) -> None:
    async def write(ctx: SingletonContext[list[str]]) -> None:
        await ctx.set(["old"])

    async def begin(ctx: SingletonContext[Progress]) -> None:
        await ctx.update(seen=1)

    older, newer = Registry(), Registry()
    older.singleton("s", state=list)(write)
    newer.singleton("s", state=Progress)(begin)
    async with weak(valkey, namespace, include=[older]) as cluster:
        await until(lambda: cluster.singleton_state("s", list), what="the old state")
        key = cluster.joined_runner().keyspace.state(cluster._singleton_shard("s", None), "s")
    with quiet("redis_cluster_kit.runtime.leader_state"):
        async with weak(valkey, namespace, include=[newer]):
            await until(lambda: valkey.call("HGET", key, "v") == "2", what="the new state")
    assert valkey.call("HGET", key, "ov") == "1"
    with valkey.connect() as client:
        assert client.call("HSTRLEN", key, "ob") == len(msgspec.msgpack.encode(["old"]))


async def test_a_write_in_doubt_is_found_again(valkey: RedisServer, namespace: str) -> None:
    """A write that went through although nobody said so: the next one goes on above it."""
    registry = Registry()
    done = anyio.Event()

    @registry.singleton("s", state=Progress, state_ttl=timedelta(hours=1))
    async def s(ctx: SingletonContext[Progress]) -> None:
        await ctx.update(seen=1)
        state = ctx._leadership._state  # type: ignore[attr-defined]
        await state._attempt(b"\x81\xa4seen\x07", 1, "lost")
        await ctx.update(seen=2)
        done.set()

    async with weak(valkey, namespace, include=[registry]) as cluster:
        await until(done.is_set, what="it has gone on")
        found = await cluster.singleton_state("s", Progress)
        assert found is not None
        assert (found.state.seen, found.version) == (2, 3)
        key = cluster.joined_runner().keyspace.state(cluster._singleton_shard("s", None), "s")
        assert 0 < int(str(valkey.call("PTTL", key))) <= 3_600_000
