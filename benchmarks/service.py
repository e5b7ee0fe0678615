"""The service that benchmarks measure: a few entity types, hosted by processes of its own, and their figures.

Not a benchmark itself. A hosting process is told by commands (`figures`, `stop`) and answers with events.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import msgspec

from redis_cluster_kit import Cluster, Entity, Settings, ShardSettings, rpc
from redis_cluster_kit.embedded import RedisClusterServers, RedisServer
from redis_cluster_kit.testing import ChildProcess, commands, emit

NOTE = "x" * 64
NAMESPACE = "bench"
STALLED_AFTER = 20.0
TOUCHED_AT_ONCE = 1_000


class StalledError(Exception):
    """The service does not finish what it was sent."""


class Ledger(msgspec.Struct):
    """A state that changes with every turn."""

    balance: int = 0
    last: str = ""


class Account(Entity[Ledger], name="account", mailbox_capacity=10_000):
    """A handler that does next to nothing, so that everything else is seen."""

    @rpc
    async def deposit(self, amount: int, note: str) -> int:
        """Change the state; with the arguments' names a message of about 100 bytes."""
        self.state.balance += amount
        self.state.last = note
        return self.state.balance

    @rpc
    async def stamp(self, sent_ns: int, note: str) -> int:
        """Return how many nanoseconds the message was on its way: one clock for all processes of a host."""
        late = now_ns() - sent_ns
        self.state.balance += 1
        self.state.last = note
        _STAMPS.append(late)
        return late


class Brief(Account, name="brief", mailbox_capacity=10_000, max_idle=timedelta(seconds=1)):
    """The same, passivated soon."""


class Sleeper(Entity[None], name="sleeper", mailbox_capacity=1_000):
    """A neighbour that is always busy."""

    @rpc
    async def nap(self, seconds: float) -> None:
        """Take that long."""
        await anyio.sleep(seconds)


_STAMPS: list[int] = []


def now_ns() -> int:
    """One clock for all processes of this host."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def cpu_seconds() -> float:
    """Return the CPU time this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def settings(shards: int = 100) -> Settings:
    """Return what hosts and senders share."""
    return Settings(shards=ShardSettings(per_group=shards))


async def host(redis: str, database: str, shards: str) -> None:
    """Host the service in this process until told to stop."""
    cluster = Cluster(
        redis,
        database or None,
        namespace=NAMESPACE,
        entities=[Account, Brief, Sleeper],
        settings=settings(int(shards)),
    )
    async with cluster:
        runner = cluster.joined_runner()
        emit("up", runner_id=cluster.runner_id)
        async for command in commands():
            if command == "stop":
                break
            assert runner.ownership is not None
            assert runner.host is not None
            emit(
                "figures",
                owned=len(runner.ownership.owned),
                commits=runner.host.counters.commits,
                quick=runner.host.counters.quick,
                rescued=runner.host.counters.rescued,
                passivated=runner.host.counters.passivated,
                entities=len(runner.host.residents),
                cpu=cpu_seconds(),
                memory=_memory(),
                stamps=_take_stamps(),
            )


def _take_stamps() -> list[int]:
    taken = list(_STAMPS)
    _STAMPS.clear()
    return taken


def _memory() -> int:
    """Return the bytes of memory this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@dataclass
class Host:
    """One hosting process, seen from the benchmark."""

    child: ChildProcess

    async def figures(self) -> Mapping[str, Any]:
        """Ask it what it has done so far."""
        await self.child.send("figures")
        return (await self.child.wait_for("figures", timeout=60)).fields


@dataclass
class Service:
    """A server or several, its hosts, and a sender's cluster in this process."""

    server: RedisServer | RedisClusterServers
    hosts: list[Host]
    cluster: Cluster
    shards: int
    start_host: Callable[[], Awaitable[Host]]

    async def add_hosts(self, number: int) -> None:
        """Start hosting processes; return when every shard has an owner."""
        for _ in range(number):
            self.hosts.append(await self.start_host())
        while number and await self.total("owned") < self.shards:
            await anyio.sleep(0.05)

    async def total(self, name: str) -> float:
        """Return the sum of one figure over all hosts."""
        found: float = sum([(await one.figures())[name] for one in self.hosts])
        return found

    async def take_stamps(self, number: int) -> list[int]:
        """Return how long so many stamped messages were on their way, when all have arrived."""
        stamps: list[int] = []
        while True:
            for one in self.hosts:
                stamps += (await one.figures())["stamps"]
            if len(stamps) >= number:
                return stamps
            await anyio.sleep(0.05)

    async def touch(self, kind: type[Account], number: int) -> None:
        """Bring so many entities into memory, some at a time: a message each, all committed at the end."""
        for first in range(0, number, TOUCHED_AT_ONCE):
            part = range(first, min(number, first + TOUCHED_AT_ONCE))
            before = await self.commits()
            await asyncio.gather(*(self.cluster.entity(kind, f"e{n}").deposit.send(1, NOTE) for n in part))
            await self.wait_for_commits(before + len(part))

    async def commits(self) -> int:
        """Return how many turns all hosts have committed."""
        return sum([(await one.figures())["commits"] for one in self.hosts])

    async def wait_for_commits(self, number: int, *, every: float = 0.01) -> None:
        """Return when that many turns are committed; `StalledError` if for long none is added."""
        seen, since = -1.0, time.monotonic()
        while (commits := await self.total("commits")) < number:
            if commits != seen:
                seen, since = commits, time.monotonic()
            elif time.monotonic() - since > STALLED_AFTER:
                raise StalledError(
                    f"{commits:.0f} of {number} turns are counted as committed, none more within "
                    f"{STALLED_AFTER:g} s; the first host's last lines:\n{self.hosts[0].child.tail}"
                )
            await anyio.sleep(every)

    def redis_cpu(self) -> float:
        """Return the CPU seconds the servers have used."""
        used = [self._info(one, "cpu") for one in self._servers()]
        return sum(float(one["used_cpu_user"]) + float(one["used_cpu_sys"]) for one in used)

    def server_name(self) -> str:
        """Return the version of the server, and what it allocates with."""
        server, memory = (self._info(self._servers()[0], section) for section in ("server", "memory"))
        version = server.get("valkey_version") or server["redis_version"]
        return f"{server.get('server_name', 'redis')} {version}, {memory['mem_allocator']}"

    @property
    def server_pid(self) -> int:
        """The process id of the server, of the first if there are several."""
        return self._servers()[0].pid

    def command_seconds(self) -> dict[str, float]:
        """Return the seconds each command has taken so far, those that scripts call too."""
        found: dict[str, float] = {}
        for server in self._servers():
            for name, counts in self._info(server, "commandstats").items():
                micros = dict(part.split("=") for part in counts.split(","))["usec"]
                command = name.removeprefix("cmdstat_")
                found[command] = found.get(command, 0.0) + float(micros) / 1e6
        return found

    def redis_memory(self) -> int:
        """Return the bytes the servers hold for data."""
        return sum(int(self._info(one, "memory")["used_memory"]) for one in self._servers())

    def _servers(self) -> tuple[RedisServer, ...]:
        return self.server.servers if isinstance(self.server, RedisClusterServers) else (self.server,)

    @staticmethod
    def _info(server: RedisServer, section: str) -> Mapping[str, str]:
        with server.connect() as client:
            return client.info(section)


@asynccontextmanager
async def serving(
    hosts: int = 1,
    *,
    shards: int = 100,
    uvloop: bool = False,
    server: RedisServer | RedisClusterServers | None = None,
    database: str | None = None,
) -> AsyncGenerator[Service]:
    """Start what is not given: a server, an SQLite file; join as a sender, and start hosting processes."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rck-bench-"))
        server = server or stack.enter_context(RedisServer.start())
        url, database = server.url, database or f"sqlite+aiosqlite:///{Path(folder) / 'bench.db'}"
        target = "benchmarks.service:" + ("host_on_uvloop" if uvloop else "host")

        async def start_host() -> Host:
            child = ChildProcess(
                target, url, database, str(shards), pythonpath=[Path(__file__).parent.parent]
            )
            await stack.enter_async_context(child)
            await child.wait_for("up", timeout=30)
            stack.push_async_callback(_stop, child)
            return Host(child)

        cluster = Cluster(url, database, namespace=NAMESPACE, hosting=False, settings=settings(shards))
        async with cluster:
            service = Service(server, [], cluster, shards, start_host)
            await service.add_hosts(hosts)
            yield service


async def _stop(child: ChildProcess) -> None:
    await child.send("stop")
    await child.wait(timeout=30)


def host_on_uvloop(redis: str, database: str, shards: str) -> None:
    """The same on uvloop."""
    import uvloop

    uvloop.run(host(redis, database, shards))


if __name__ == "__main__":
    sys.exit("this is no benchmark: run one that uses it")
