"""Eight requests with one key, as fast as they come: five are served at once, the others when it is time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from redis_cluster_kit import Cluster

from .bucket import Allowed, Bucket, Limit, Refused, WallClock

LIMIT = Limit(burst=5, per_second=10.0)


@asynccontextmanager
async def resources(cluster: Cluster) -> AsyncGenerator[None]:
    cluster.provide(WallClock, WallClock())
    yield


async def request(cluster: Cluster, key: str) -> int:
    """Do something that is limited; return how often it had to wait."""
    waits = 0
    while True:
        match await cluster.entity(Bucket, key).take(LIMIT):
            case Allowed():
                return waits
            case Refused(retry_after):
                waits += 1
                await anyio.sleep(retry_after)


async def main() -> None:
    async with Cluster.embedded(entities=[Bucket], lifespan=resources) as cluster:
        waits = [await request(cluster, "key-1") for _ in range(8)]
        print(f"{waits.count(0)} requests at once, {8 - waits.count(0)} after a wait")


anyio.run(main)
