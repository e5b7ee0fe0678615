"""What do other servers, databases and event loops change? One row each, measured in turn.

The first row is what everything else here is measured on: one Valkey, SQLite, asyncio. Nothing is promised;
every message of every row must have been handled.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.latency import asked, one_way, spread
from benchmarks.machine import machine, versions, write_results
from benchmarks.service import serving
from benchmarks.throughput import Rate, measure
from redis_cluster_kit.embedded import (
    PostgresServer,
    RedisClusterServers,
    RedisServer,
    ServerNotInstalledError,
)
from redis_cluster_kit.embedded.redis_server import valkey_binary

STAMPS = 500

Opened = Callable[[ExitStack], dict[str, Any]]


def _redis(stack: ExitStack) -> dict[str, Any]:
    return {"server": stack.enter_context(RedisServer.start(binary="redis-server"))}


def _untuned(stack: ExitStack) -> dict[str, Any]:
    return {"server": stack.enter_context(RedisServer.start(binary=valkey_binary()))}


def _masters(stack: ExitStack) -> dict[str, Any]:
    return {"server": stack.enter_context(RedisClusterServers.start(3))}


def _postgres(stack: ExitStack) -> dict[str, Any]:
    return {"database": stack.enter_context(PostgresServer.start()).url}


def _kept(stack: ExitStack) -> dict[str, Any]:
    return {"server": stack.enter_context(RedisServer.start(append_only=True, fsync="everysec"))}


@dataclass
class Deployment:
    """One row: what differs, and what was measured."""

    title: str
    opened: Opened
    sends: Rate = field(default_factory=lambda: Rate("one-way", ask=False))
    asks: Rate = field(default_factory=lambda: Rate("asked", ask=True))
    one_way_ms: list[float] = field(default_factory=list[float])
    asked_ms: list[float] = field(default_factory=list[float])
    server: str = ""
    skipped: str = ""

    @contextmanager
    def options(self) -> Iterator[dict[str, Any]]:
        """Start what differs; return it as options of the service."""
        with ExitStack() as stack:
            yield self.opened(stack)

    def figures(self) -> dict[str, Any]:
        """What is written down."""
        if self.skipped:
            return {"sends_per_second": f"not measured: {self.skipped}"}
        return {
            "sends_per_second": round(statistics.median(self.sends.per_second)),
            "asks_per_second": round(statistics.median(self.asks.per_second)),
            "owner_cpu_us": round(statistics.median(self.sends.owner_us), 1),
            "servers_cpu_us": round(statistics.median(self.sends.redis_us), 1),
            "one_way_p50_ms": round(statistics.median(self.one_way_ms), 3),
            "asked_p50_ms": round(statistics.median(self.asked_ms), 3),
            "server": self.server,
        }


def deployments() -> list[Deployment]:
    """Return the rows."""
    return [
        Deployment("one Valkey, SQLite, asyncio", lambda _: {}),
        Deployment("uvloop in the host", lambda _: {"uvloop": True}),
        Deployment("PostgreSQL", _postgres),
        Deployment("three masters, in cluster mode", _masters),
        Deployment("appendonly, fsync every second", _kept),
        Deployment("malloc without larger caches", _untuned),
        Deployment("redis-server of the system", _redis),
    ]


async def run(row: Deployment, messages: int) -> None:
    """Measure one row once."""
    with row.options() as options:
        async with serving(**options) as service:
            row.server = service.server_name()
            for ask in (False, True):
                await measure(service, Rate("warm-up", ask=ask), min(5_000, messages))
            await measure(service, row.sends, messages)
            await measure(service, row.asks, messages)
            row.one_way_ms.append(spread(await one_way(service, STAMPS))["p50"])
            row.asked_ms.append(spread(await asked(service, STAMPS))["p50"])


def report(rows: list[Deployment]) -> None:
    """Print the table."""
    print(
        f"{'':34}{'sends/s':>10}{'asks/s':>10}{'owner µs':>10}{'servers µs':>12}{'one-way':>9}{'asked':>8} ms"
    )
    for row in rows:
        found = row.figures()
        if row.skipped:
            print(f"{row.title:34}{row.skipped}")
            continue
        print(
            f"{row.title:34}{found['sends_per_second']:>10,}{found['asks_per_second']:>10,}"
            f"{found['owner_cpu_us']:>10}{found['servers_cpu_us']:>12}"
            f"{found['one_way_p50_ms']:>9.3f}{found['asked_p50_ms']:>8.3f}"
        )


def write(rows: list[Deployment], messages: int) -> None:
    """Write it down, with a chart."""
    measured = [row for row in rows if not row.skipped]
    bars = {row.title: row.figures()["sends_per_second"] for row in measured}
    asks = {row.title: row.figures()["asks_per_second"] for row in measured}
    write_results(
        "deployments",
        {
            "machine": machine(),
            "versions": versions("redis", "hiredis", "msgspec", "anyio", "asyncpg", "uvloop"),
            "messages": messages,
            "figures": {row.title: row.figures() for row in rows},
            "charts": [
                {"title": "Messages a second, one-way", "unit": "messages/s", "bars": bars},
                {"title": "Asks a second", "unit": "asks/s", "bars": asks},
            ],
        },
    )


def main() -> int:
    """Measure, print, write down; there is no promise to break."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    rows = deployments()
    for turn in range(chosen.rounds):
        for row in rows:
            if row.skipped:
                continue
            try:
                asyncio.run(run(row, chosen.messages))
            except ServerNotInstalledError as error:
                row.skipped = str(error)
                continue
            print(f"round {turn + 1}: {row.title} {row.sends.per_second[-1]:,.0f}/s", flush=True)
    report(rows)
    write(rows, chosen.messages)
    found = {row.title: statistics.median(row.sends.per_second) for row in rows if not row.skipped}
    print(", ".join(f"{title} {rate:,.0f}/s" for title, rate in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
