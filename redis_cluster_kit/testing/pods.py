"""Several pods in one process on an embedded server, and a clock that tests move: `local_cluster(pods=3, …)`.

Everything is real but the number of processes: the server, the leases, the takeovers.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import warnings
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio.to_thread

from redis_cluster_kit.clock import MovableClock
from redis_cluster_kit.cluster import Cluster
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.settings import LeaseSettings, Settings, ShardSettings, ShortLeaseWarning

from .waiting import until

_TTL = timedelta(seconds=1)
_SHARDS = 16


class PodsClock:
    """The clock all pods share: what it shows can be moved on, leases stay real."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods
        self.clock = MovableClock()

    async def advance(self, by: timedelta) -> None:
        """Move the time of schedules, idleness and cron on; return when what came due was looked at."""
        self.clock.advance(by)
        for host in self._pods.hosts():
            host.clock_moved()
        await self._pods.poll()


class Pods(Sequence[Cluster]):
    """The pods that are alive: `pods[0].entity(…)`."""

    def __init__(self) -> None:
        self._alive: list[Cluster] = []
        self.clock = PodsClock(self)

    def __getitem__(self, place: Any) -> Any:
        return self._alive[place]

    def __len__(self) -> int:
        return len(self._alive)

    def add(self, pod: Cluster) -> None:
        """Count a pod that was entered."""
        self._alive.append(pod)

    async def kill(self, place: int) -> None:
        """End a pod as SIGKILL would: nothing is given back, its shards wait for its leases to end."""
        pod = self._alive.pop(place)
        runner = pod.joined_runner()
        await runner.kill()
        await pod.__aexit__(None, None, None)

    async def stop(self, place: int) -> None:
        """End a pod politely: its shards are handed off."""
        await self._alive.pop(place).__aexit__(None, None, None)

    async def poll(self) -> None:
        """Let every pod read storage once."""
        await asyncio.gather(*(pod.poll() for pod in self._alive))

    async def settle(self, *, timeout: float = 30.0) -> None:
        """Return when every shard has its owner and no message waits or is on its way."""
        await until(self._is_settled, timeout=timeout, what="every shard owned and every mailbox empty")

    def hosts(self) -> Iterator[Any]:
        """Yield the entity hosts of the pods that have one."""
        for pod in self._alive:
            host = pod.joined_runner().host
            if host is not None:
                yield host

    async def _is_settled(self) -> bool:
        runners = [pod.joined_runner() for pod in self._alive]
        owning = [runner.ownership for runner in runners if runner.ownership is not None]
        if not owning or any(one.missing or not one.is_placed for one in owning):
            return False
        record = runners[0].record
        assert record is not None
        shards = [
            ShardId(group, number) for group, count in record.shard_counts.items() for number in range(count)
        ]
        if len({shard for one in owning for shard in one.owned}) < len(shards):
            return False
        mailboxes = runners[0].messaging.mailboxes
        waiting = await asyncio.gather(*(mailboxes.is_quiet(shard) for shard in shards))
        return all(waiting)


@asynccontextmanager
async def local_cluster(
    pods: int = 3, *, settings: Settings | None = None, namespace: str = "test", **options: Any
) -> AsyncGenerator[Pods]:
    """Run several pods on an embedded server and an SQLite file; `options` are those of `Cluster`.

    Leases last a second, so that a killed pod's shards are taken over soon; there are 16 shards a group.
    """
    running = Pods()
    with tempfile.TemporaryDirectory(prefix="rck-pods-") as folder:
        server = await anyio.to_thread.run_sync(RedisServer.start)
        try:
            database = f"sqlite+aiosqlite:///{Path(folder) / 'cluster.db'}"
            made = [
                Cluster(
                    server.url, database, namespace=namespace, settings=settings or _quick(), **options
                ).with_clock(running.clock.clock)
                for _ in range(pods)
            ]
            async with contextlib.AsyncExitStack() as stack:
                stack.push_async_callback(_leave_all, running)
                for pod in made:
                    await pod.__aenter__()
                    running.add(pod)
                await running.settle()
                yield running
        finally:
            await anyio.to_thread.run_sync(server.stop)


async def _leave_all(pods: Pods) -> None:
    while len(pods):
        await pods.stop(len(pods) - 1)


def _quick() -> Settings:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortLeaseWarning)  # meant: a test's takeovers should be quick
        return Settings(lease=LeaseSettings(ttl=_TTL), shards=ShardSettings(per_group=_SHARDS))
