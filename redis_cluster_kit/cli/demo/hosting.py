"""What runs in each of the demo's pods: a runner that serves the bank until SIGTERM.

It tells which shards it gained and lost, by the boot clock all processes of a host share, and its counters
twice a second.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio

from redis_cluster_kit.cluster import Cluster
from redis_cluster_kit.ownership import ClusterEvent, ShardGained, ShardLost
from redis_cluster_kit.settings import LeaseSettings, Settings, ShortLeaseWarning
from redis_cluster_kit.testing import emit

from .bank import registry

NAMESPACE = "demo"
_TELL_EVERY = 0.5


def settings_of(ttl: timedelta) -> Settings:
    """Return the settings of the demo's processes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortLeaseWarning)  # whoever asks for quick takeovers means it
        return Settings(lease=LeaseSettings(ttl=ttl))


async def serve(options: str) -> None:
    """Be a runner until SIGTERM."""
    given = json.loads(options)
    cluster = Cluster(
        given["redis"],
        given["database"],
        namespace=NAMESPACE,
        name=given["name"],
        include=[registry],
        lifespan=_telling,
        settings=settings_of(timedelta(seconds=given["ttl"])),
    )
    async with cluster:
        emit("joined", runner=cluster.runner_id)
        await cluster.run_forever()


@asynccontextmanager
async def _telling(cluster: Cluster) -> AsyncGenerator[None]:
    """Listen from before the first shard until after the last."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_tell, cluster.events())
        tasks.start_soon(_tell_figures, cluster)
        yield
        tasks.cancel_scope.cancel()


async def _tell(events: AsyncIterator[ClusterEvent]) -> None:
    async for event in events:
        if isinstance(event, ShardGained):
            emit("gained", shard=str(event.shard), fence=event.fence)
        elif isinstance(event, ShardLost):
            emit("lost", shard=str(event.shard), fence=event.fence, clean=event.was_clean)


async def _tell_figures(cluster: Cluster) -> None:
    while True:
        await anyio.sleep(_TELL_EVERY)
        reading = cluster.joined_runner().read()
        emit(
            "figures",
            commits=reading.counters.commits,
            fenced=reading.counters.fenced,
            entities=reading.entities,
            latency=reading.counters.latency,
        )
