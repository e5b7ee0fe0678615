"""Who leaves, leaves nothing behind that keeps others waiting."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import anyio

from redis_cluster_kit import LeaseSettings, ShardId
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, quick


async def test_leases_taken_while_leaving_are_given_back(
    make_cluster: MakeCluster, valkey: RedisServer, namespace: str
) -> None:
    """They have no fence yet, so nobody owns the shards: the next owner must not wait for their end."""
    settings = quick(lease=LeaseSettings(ttl=timedelta(seconds=30)))
    asked = anyio.Event()

    async def never(shards: Iterable[ShardId], *, timeout: float) -> dict[ShardId, int]:
        asked.set()
        await anyio.sleep_forever()
        return {}

    def leases() -> object:
        return valkey.call("KEYS", f"rck:{{{namespace}:*lease*")

    async with make_cluster(settings=settings) as first:
        runner = first._runner
        assert runner is not None
        assert runner.ownership is not None
        owned = runner.ownership.owned
        await until(lambda: len(owned) == 12, timeout=30, what="all shards owned")
        runner.ownership._fences.establish = never  # type: ignore[method-assign]
        for shard in list(owned.values()):
            shard.lose("the test wants it taken again")
        await until(asked.is_set, timeout=30, what="fences are asked for")
        assert not owned
        assert leases() != []
    assert leases() == []
