"""A runner in a process of its own for tests of signals: `run_forever`, and turns that hold up the drain."""

from __future__ import annotations

import json
import signal
import warnings
from datetime import timedelta

import anyio

from redis_cluster_kit import (
    Cluster,
    DrainSettings,
    LeaseSettings,
    Settings,
    ShardSettings,
    ShortLeaseWarning,
)
from redis_cluster_kit.ownership import OwnedShard
from redis_cluster_kit.testing import emit


class Busy(Cluster):
    """Holds on to its shards for `hold` seconds after it was asked to give them away."""

    hold = 0.0

    async def _serve(self, owned: OwnedShard) -> None:
        await owned.ending.wait()
        await anyio.sleep(self.hold)


async def say_when_it_listens() -> None:
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        await anyio.sleep(0.01)
    emit("serving")


async def main(options: str) -> None:
    given = json.loads(options)
    warnings.simplefilter("ignore", ShortLeaseWarning)
    settings = Settings(
        lease=LeaseSettings(ttl=timedelta(seconds=1)),
        shards=ShardSettings(per_group=8),
        drain=DrainSettings(budget=timedelta(seconds=given.get("budget", 10))),
    )
    cluster = Busy(given["redis"], given["database"], namespace=given["namespace"], settings=settings)
    cluster.hold = given.get("hold", 0.0)
    async with cluster:
        runner = cluster._runner
        assert runner is not None
        assert runner.ownership is not None
        while len(runner.ownership.owned) < 8:
            await anyio.sleep(0.01)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(say_when_it_listens)
            await cluster.run_forever()
        emit("drained", owned=len(runner.ownership.owned))
    emit("left")
