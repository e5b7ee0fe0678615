"""How many commands a second do 200 concurrent callers get, and what does one cost the client?

Three ways in the same run on the embedded server: awaited redis-py on a pool of 200, redis-py pipelines fed
by one task, and the kit's lanes. What the callers counted is compared with what the server says it ran.
Exits 1 if the lanes get less than three times what the pool does.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from benchmarks.machine import machine, versions, write_results
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.redis_access import Lanes, RedisUrl
from redis_cluster_kit.settings import RedisSettings

CALLERS = 200
ROUNDS = 3
SECONDS = 2.0
PROMISE, AIM = 3.0, 4.0
VALUE = b"x" * 100

Call = Callable[[int], Awaitable[Any]]


@asynccontextmanager
async def pool(url: str) -> AsyncIterator[Call]:
    """Each caller awaits redis-py on a connection of its own."""
    connections = ConnectionPool.from_url(url, max_connections=CALLERS, retry=Retry(NoBackoff(), 0))
    async with Redis(connection_pool=connections) as client:
        yield lambda number: client.set(f"bench:{number}", VALUE)
    await connections.disconnect()


@asynccontextmanager
async def pipelines(url: str) -> AsyncIterator[Call]:
    """A prototype: one task drains what callers left into a redis-py pipeline, and again."""
    waiting: list[tuple[tuple[Any, ...], asyncio.Future[Any]]] = []
    wake = asyncio.Event()

    async def drain(client: Redis) -> None:
        while True:
            await wake.wait()
            wake.clear()
            batch, waiting[:] = waiting[:], []
            pipeline = client.pipeline(transaction=False)
            for words, _ in batch:
                pipeline.execute_command(*words)
            for (_, future), reply in zip(batch, await pipeline.execute(), strict=True):
                if not future.done():
                    future.set_result(reply)

    def call(number: int) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        waiting.append((("SET", f"bench:{number}", VALUE), future))
        wake.set()
        return future

    async with Redis.from_url(url, max_connections=1, retry=Retry(NoBackoff(), 0)) as client:
        draining = asyncio.create_task(drain(client))
        yield call
        draining.cancel()
        await asyncio.wait([draining])


@asynccontextmanager
async def lanes(url: str) -> AsyncIterator[Call]:
    """The kit: hiredis on a socket of its own."""
    async with Lanes(RedisUrl.parse(url), RedisSettings()) as ours:
        yield lambda number: ours.call(number, "SET", f"bench:{number}", VALUE)


@dataclass
class Way:
    """One way to send commands, and what each round of it measured."""

    title: str
    opened: Callable[[str], AbstractAsyncContextManager[Call]]
    rates: list[float] = field(default_factory=list[float])
    cpu_microseconds: list[float] = field(default_factory=list[float])
    waits_ms: list[float] = field(default_factory=list[float])
    batches: list[float] = field(default_factory=list[float])

    @property
    def rate(self) -> float:
        """The median of commands a second."""
        return statistics.median(self.rates)

    def figures(self) -> dict[str, Any]:
        """What is written down."""
        return {
            "commands_per_second": round(self.rate),
            "commands_per_second_of_each_round": [round(rate) for rate in self.rates],
            "client_cpu_microseconds_per_command": round(statistics.median(self.cpu_microseconds), 1),
            "mean_wait_ms": round(statistics.median(self.waits_ms), 2),
            "commands_per_read_of_the_server": round(statistics.median(self.batches), 1),
        }


async def measure(way: Way, url: str) -> int:
    """One round: callers that send one command after the other until the time is up; returns how many."""
    async with way.opened(url) as call:
        await asyncio.gather(*(call(number) for number in range(CALLERS)))  # every connection is open now

        async def caller(number: int, until: float) -> int:
            done = 0
            while time.perf_counter() < until:
                await call(number)
                done += 1
            return done

        begin, cpu = time.perf_counter(), time.process_time()
        counts = await asyncio.gather(*(caller(number, begin + SECONDS) for number in range(CALLERS)))
        took, spent, total = time.perf_counter() - begin, time.process_time() - cpu, sum(counts)
    way.rates.append(total / took)
    way.cpu_microseconds.append(spent / total * 1e6)
    way.waits_ms.append(took * CALLERS / total * 1e3)
    return total + CALLERS


def check_round(way: Way, server: RedisServer) -> None:
    """Measure one round and hold it against the server's own count."""
    commands, reads = _served(server)
    sent = asyncio.run(measure(way, server.url))
    ran, read = (after - before for after, before in zip(_served(server), (commands, reads), strict=True))
    if ran != sent:
        raise SystemExit(f"{way.title}: callers counted {sent} answers, the server ran {ran} commands")
    way.batches.append(ran / read)


def _served(server: RedisServer) -> tuple[int, int]:
    """How many SETs the server has run, and how often it has read from a socket."""
    with server.connect() as client:
        found = client.info("commandstats").get("cmdstat_set", "calls=0,")
        reads = int(client.info("stats")["total_reads_processed"])
    return int(re.findall(r"calls=(\d+)", found)[0]), reads


def report(ways: list[Way]) -> None:
    """Print the table."""
    print(f"{CALLERS} concurrent callers, SET of {len(VALUE)} bytes, medians of {ROUNDS} rounds")
    print(f"{'':44}{'commands/s':>12}{'× pool':>9}{'CPU µs each':>13}{'wait ms':>9}{'batch':>8}")
    for way in ways:
        cpu, wait = statistics.median(way.cpu_microseconds), statistics.median(way.waits_ms)
        factor = way.rate / ways[0].rate
        batch = statistics.median(way.batches)
        print(f"{way.title:44}{way.rate:>12,.0f}{factor:>9.1f}{cpu:>13.1f}{wait:>9.2f}{batch:>8.0f}")


def charts(ways: list[Way]) -> list[dict[str, Any]]:
    """What the report draws."""
    rates = {way.title: round(way.rate) for way in ways}
    cpu = {way.title: round(statistics.median(way.cpu_microseconds), 1) for way in ways}
    return [
        {
            "title": f"{CALLERS} concurrent callers",
            "unit": "commands a second",
            "bars": rates,
            "promise": PROMISE * round(ways[0].rate),
        },
        {"title": "What one costs the client", "unit": "µs of CPU", "bars": cpu},
    ]


def main() -> int:
    """Measure, print, write down; 1 if the promise is not kept."""
    ways = [
        Way("redis-py, awaited, pool of 200", pool),
        Way("redis-py, pipelines fed by one task", pipelines),
        Way("lanes: hiredis on a socket of their own", lanes),
    ]
    with RedisServer.start() as server:
        for turn in range(ROUNDS):
            for way in ways[turn:] + ways[:turn]:  # none is always the first
                check_round(way, server)
        with server.connect() as client:
            info = client.info("server")
    factor = ways[-1].rate / ways[0].rate
    report(ways)
    path = write_results(
        "lanes",
        {
            "machine": machine(),
            "versions": {
                **versions("redis", "hiredis"),
                "valkey": info.get("valkey_version", info["redis_version"]),
            },
            "callers": CALLERS,
            "value_bytes": len(VALUE),
            "figures": {way.title: way.figures() for way in ways},
            "lanes_to_pool": round(factor, 2),
            "promise": PROMISE,
            "charts": charts(ways),
        },
    )
    print(f"written to {path.relative_to(path.parents[2])}")
    print(
        f"{factor:.1f} × the pool: {'at least' if factor >= PROMISE else 'BELOW'} {PROMISE:g} (aim {AIM:g})"
    )
    return 0 if factor >= PROMISE else 1


if __name__ == "__main__":
    sys.exit(main())
