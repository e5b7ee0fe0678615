"""How long is a message on its way from one process to another, beside the floor of raw redis-py?

One-way from `send` to the handler, and asks from call to answer; idle and at half the load the pair can bear.
The floor is XADD → XREADGROUP BLOCK between two processes, and its request and reply, in the same run. Exits
1 if the one-way p99 reaches 100 ms, or a ratio to the floor is beyond its limit.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.machine import machine, versions, write_results
from benchmarks.service import NOTE, Account, Service, serving
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import ChildProcess, commands, emit

PROMISE_MS = 100.0
RATIO_LIMITS = {"one-way": 2.5, "asked": 3.0}
RATIO_AIMS = {"one-way": 1.8, "asked": 2.2}
LOAD_PER_SECOND = 5_000


def now_ns() -> int:
    """One clock for all processes of this host."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def spread(nanoseconds: list[int]) -> dict[str, float]:
    """Return percentiles in milliseconds."""
    ordered = sorted(nanoseconds)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e6, 3)

    return {"p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "max": round(ordered[-1] / 1e6, 3)}


# --- The kit ---


async def one_way(service: Service, number: int) -> list[int]:
    """Send one after the other, each when the one before has arrived; return how long each was on its way."""
    alice = service.cluster.entity(Account, "latency")
    await service.take_stamps(0)
    for _ in range(number):
        await alice.stamp.send(now_ns(), NOTE)
        await asyncio.sleep(0.002)
    return await service.take_stamps(number)


async def asked(service: Service, number: int) -> list[int]:
    """Ask one after the other; return how long each took."""
    alice = service.cluster.entity(Account, "latency")
    took: list[int] = []
    for _ in range(number):
        began = now_ns()
        await alice.stamp(began, NOTE)
        took.append(now_ns() - began)
    await service.take_stamps(number)
    return took


@asynccontextmanager
async def under_load(service: Service, per_second: int) -> Any:
    """Send messages to other entities all the while."""
    proxies = [service.cluster.entity(Account, f"load{number}") for number in range(200)]

    async def send() -> None:
        sent, began = 0, time.perf_counter()
        while True:
            due = min(int((time.perf_counter() - began) * per_second), sent + 500)  # no more than it bears
            await asyncio.gather(*(proxies[n % 200].deposit.send(1, NOTE) for n in range(sent, due)))
            sent = max(sent, due)
            await asyncio.sleep(0.002)

    load = asyncio.create_task(send())
    try:
        yield
    finally:
        load.cancel()
        await asyncio.wait((load,))


# --- The floor ---


async def floor_reader(url: str) -> None:
    """Read a stream with redis-py and answer what asks to be answered."""
    import redis.asyncio

    client = redis.asyncio.Redis.from_url(url)
    await client.xgroup_create("floor", "g", mkstream=True)
    emit("up")
    told = asyncio.create_task(_until_told())
    late: list[int] = []
    while not told.done():
        reply: Any = await client.xreadgroup("g", "c", {"floor": ">"}, count=100, block=100)
        for _, entries in reply or ():
            for entry, fields in entries:
                late.append(now_ns() - int(fields[b"t"]))
                if fields.get(b"r"):
                    await client.xadd(fields[b"r"], {"t": fields[b"t"]})
                await client.xack("floor", "g", entry)
    emit("late", late=late)
    await client.aclose()


async def _until_told() -> None:
    async for _ in commands():
        return


async def floor(url: str, number: int) -> tuple[list[int], list[int]]:
    """Return how long raw messages were on their way, and how long raw requests took."""
    import redis.asyncio

    child = ChildProcess("benchmarks.latency:floor_reader", url, pythonpath=[Path(__file__).parent.parent])
    async with child:
        await child.wait_for("up")
        client = redis.asyncio.Redis.from_url(url)
        for _ in range(number):
            await client.xadd("floor", {"t": now_ns(), "n": NOTE})
            await asyncio.sleep(0.002)
        took: list[int] = []
        last: Any = "0"
        for _ in range(number):
            began = now_ns()
            await client.xadd("floor", {"t": began, "n": NOTE, "r": "replies"})
            reply: Any = await client.xread({"replies": last}, block=1000)
            last = reply[0][1][-1][0]
            took.append(now_ns() - began)
        await child.send("stop")
        late = (await child.wait_for("late"))["late"]
        await child.wait()
        await client.aclose()
    return late[:number], took


# --- The run ---


async def run(number: int) -> dict[str, dict[str, float]]:
    """Measure everything once."""
    found: dict[str, dict[str, float]] = {}
    with RedisServer.start() as server:
        late, took = await floor(server.url, number)
        found |= {"floor one-way": spread(late), "floor asked": spread(took)}
    async with serving() as service:
        await one_way(service, 200)
        await asked(service, 200)
        found["one-way"] = spread(await one_way(service, number))
        found["asked"] = spread(await asked(service, number))
        async with under_load(service, LOAD_PER_SECOND):
            await asyncio.sleep(0.5)
            found["one-way at load"] = spread(await one_way(service, number))
            found["asked at load"] = spread(await asked(service, number))
    return found


def medians(rounds: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the median of each figure over the rounds."""
    return {
        title: {name: statistics.median(one[title][name] for one in rounds) for name in rounds[0][title]}
        for title in rounds[0]
    }


def report(found: dict[str, dict[str, float]]) -> None:
    """Print the table."""
    print(f"{'ms':18}{'p50':>9}{'p99':>9}{'p99.9':>9}{'max':>9}")
    for title, one in found.items():
        print(f"{title:18}{one['p50']:>9.3f}{one['p99']:>9.3f}{one['p999']:>9.3f}{one['max']:>9.3f}")


def main() -> int:
    """Measure, print, write down; 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    rounds = []
    for turn in range(chosen.rounds):
        rounds.append(asyncio.run(run(chosen.messages)))
        print(f"round {turn + 1}: one-way p50 {rounds[-1]['one-way']['p50']} ms", flush=True)
    found = medians(rounds)
    report(found)
    ratios = {kind: round(found[kind]["p50"] / found[f"floor {kind}"]["p50"], 2) for kind in RATIO_LIMITS}
    write_results(
        "latency",
        {
            "machine": machine(),
            "versions": versions("redis", "hiredis", "msgspec", "anyio"),
            "messages": chosen.messages,
            "load_per_second": LOAD_PER_SECOND,
            "figures_ms": found,
            "ratio_to_floor": ratios,
            "limits": {"one_way_p99_ms": PROMISE_MS, **RATIO_LIMITS},
        },
    )
    worst = max(found["one-way"]["p99"], found["one-way at load"]["p99"])
    kept = worst < PROMISE_MS and all(ratios[kind] <= limit for kind, limit in RATIO_LIMITS.items())
    print(
        f"one-way {found['one-way']['p50']} ms ({ratios['one-way']} × the floor), "
        f"asked {found['asked']['p50']} ms ({ratios['asked']} ×), "
        f"p99 at most {worst} ms{'' if kept else ' — NOT KEPT'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
