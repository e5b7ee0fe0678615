"""Several pods in one process on an embedded server, and a clock that tests move: `local_cluster(pods=3, …)`.

Everything is real but the number of processes: the server, the leases, the takeovers. With `faults=True` each
pod reaches the server through a proxy of its own, so that it can be paused and lose a reply.
"""

from __future__ import annotations

import asyncio
import tempfile
import warnings
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio.to_thread

from redis_cluster_kit.clock import MovableClock
from redis_cluster_kit.cluster import Cluster
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.redis_access import Script
from redis_cluster_kit.settings import LeaseSettings, Settings, ShardSettings, ShortLeaseWarning

from .proxy import Proxy
from .proxy_rules import Loss, Rule
from .resp_pairing import command
from .waiting import until

_TTL = timedelta(seconds=1)
_SHARDS = 16
_STEPS = {"send": "mailbox/append", "claim": "mailbox/claim", "commit": "turn/commit", "failure": "turn/fail"}


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
        self._proxies: dict[Cluster, Proxy] = {}
        self._pauses: dict[Cluster, Rule] = {}
        self.clock = PodsClock(self)

    def __getitem__(self, place: Any) -> Any:
        return self._alive[place]

    def __len__(self) -> int:
        return len(self._alive)

    def add(self, pod: Cluster, proxy: Proxy | None = None) -> None:
        """Count a pod that was entered, and the proxy it uses."""
        self._alive.append(pod)
        if proxy is not None:
            self._proxies[pod] = proxy

    # Faults

    async def kill(self, place: int) -> None:
        """End a pod as SIGKILL would: nothing is given back, its shards wait for its leases to end."""
        pod = self._alive.pop(place)
        self._wake(pod)
        runner = pod.joined_runner()
        await runner.kill()
        await pod.__aexit__(None, None, None)

    async def stop(self, place: int) -> None:
        """End a pod politely: its shards are handed off."""
        pod = self._alive.pop(place)
        self._wake(pod)
        await pod.__aexit__(None, None, None)

    def pause(self, place: int) -> Rule:
        """Let nothing pass between a pod and Redis until `.lift()`, or for a block: `with pods.pause(0):`.

        Its leases end meanwhile, others take its shards over, and what it tries to write when it wakes is
        fenced off. Its own code goes on, unlike that of a stopped process (`ChildProcess.stop`).
        """
        pod = self._alive[place]
        rule = self._pauses[pod] = self.proxy(place).hold()
        return rule

    def lose_reply(self, place: int, of: str = "commit", *, nth: int = 1) -> Loss:
        """Let Redis do the nth `of` a pod from now on, and lose the answer: `.assert_fired(1)` proves it.

        `of` is a step of a message: `send`, `claim`, `commit` or `failure`; or a script, like
        `scheduled/promote`.
        """
        script = Script.load(_STEPS.get(of, of))
        shas = {script.sha, script.refused_without_memory().sha} if of == "commit" else {script.sha}
        fits = [command("EVALSHA", "EVAL", sha=sha) for sha in sorted(shas)]
        return self.proxy(place).lose_reply(lambda frame: any(fit(frame) for fit in fits), nth=nth)

    def proxy(self, place: int) -> Proxy:
        """Return what stands between a pod and Redis, for every other fault."""
        try:
            return self._proxies[self._alive[place]]
        except KeyError:
            raise RuntimeError("this cluster has no proxies: local_cluster(…, faults=True)") from None

    # What is so

    async def poll(self) -> None:
        """Let every pod that is not paused read storage once."""
        await asyncio.gather(*(pod.poll() for pod in self._awake()))

    async def settle(self, *, timeout: float = 30.0) -> None:
        """Return when every shard has its owner and no message waits or is on its way."""
        await until(self._is_settled, timeout=timeout, what="every shard owned and every mailbox empty")

    def hosts(self) -> Iterator[Any]:
        """Yield the entity hosts of the pods that have one and are not paused."""
        for pod in self._awake():
            host = pod.joined_runner().host
            if host is not None:
                yield host

    def _awake(self) -> list[Cluster]:
        return [pod for pod in self._alive if pod not in self._pauses or not self._pauses[pod].active]

    def _wake(self, pod: Cluster) -> None:
        if pod in self._pauses:
            self._pauses[pod].lift()

    async def _is_settled(self) -> bool:
        runners = [pod.joined_runner() for pod in self._awake()]
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
    pods: int = 3,
    *,
    settings: Settings | None = None,
    namespace: str = "test",
    faults: bool = False,
    **options: Any,
) -> AsyncGenerator[Pods]:
    """Run several pods on an embedded server and an SQLite file; `options` are those of `Cluster`.

    Leases last a second, so that a killed pod's shards are taken over soon; there are 16 shards a group.
    `faults` puts a proxy before each pod, for `pause` and `lose_reply`.
    """
    running, chosen = Pods(), settings or _quick()
    with tempfile.TemporaryDirectory(prefix="rck-pods-") as folder:
        server = await anyio.to_thread.run_sync(RedisServer.start)
        try:
            database = f"sqlite+aiosqlite:///{Path(folder) / 'cluster.db'}"
            async with AsyncExitStack() as stack:
                proxies = [Proxy.to("127.0.0.1", server.port) if faults else None for _ in range(pods)]
                for proxy in proxies:
                    if proxy is not None:
                        await stack.enter_async_context(proxy)
                stack.push_async_callback(_leave_all, running)
                for proxy in proxies:
                    url = server.url if proxy is None else proxy.url(server.url)
                    pod = Cluster(url, database, namespace=namespace, settings=chosen, **options)
                    await pod.with_clock(running.clock.clock).__aenter__()
                    running.add(pod, proxy)
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
