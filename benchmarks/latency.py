"""How long is a message on its way from one process to another, beside the floor of raw redis-py?

One-way from `send` to the handler, and asks from call to answer; idle and beside others.
The floor is redis-py by hand (`by_hand`): XADD → XREADGROUP BLOCK between two processes, and its request and
reply, measured in turn with the kit. Exits 1 if the one-way p99 reaches 100 ms, or a ratio to the floor is
beyond its limit.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.by_hand import by_hand
from benchmarks.machine import machine, versions, write_results
from benchmarks.service import NOTE, Account, Service, now_ns, serving
from redis_cluster_kit.embedded import RedisServer

PROMISE_MS = 100.0
RATIO_LIMITS = {"one-way": 2.5, "asked": 3.0}
RATIO_AIMS = {"one-way": 1.8, "asked": 2.2}
LOAD_PER_SECOND = 5_000
PARTS = 8
"""So many times a round goes from the floor to the kit and back: a slow second hits both."""


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


# --- The run ---


async def run(number: int) -> dict[str, dict[str, float]]:
    """Measure everything once; the kit and the floor in turn, a part each."""
    taken: dict[str, list[int]] = {"floor one-way": [], "one-way": [], "floor asked": [], "asked": []}
    with RedisServer.start() as server:
        async with serving() as service, by_hand(server.url) as floor:
            await one_way(service, 200)
            await asked(service, 200)
            await floor.one_way(200)
            await floor.asked(200)
            for _ in range(PARTS):
                taken["floor one-way"] += await floor.one_way(number // PARTS)
                taken["one-way"] += await one_way(service, number // PARTS)
                taken["floor asked"] += await floor.asked(number // PARTS)
                taken["asked"] += await asked(service, number // PARTS)
    async with serving() as service:
        await one_way(service, 200)
        async with under_load(service, LOAD_PER_SECOND):
            await asyncio.sleep(0.5)
            taken["one-way at load"] = await one_way(service, number)
            taken["asked at load"] = await asked(service, number)
    return {title: spread(waits) for title, waits in taken.items()}


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


def charts(found: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """The kit beside the floor, and how far its slowest are from what is promised."""
    titles = {
        "redis-py by hand, idle": "floor {}",
        "the kit, idle": "{}",
        f"the kit, {LOAD_PER_SECOND:,} others a second": "{} at load",
    }
    medians = [
        {
            "title": f"{title}: half of all messages take at most",
            "unit": "ms",
            "bars": {label: found[name.format(kind)]["p50"] for label, name in titles.items()},
        }
        for kind, title in (("one-way", "From process to process"), ("asked", "Asked and answered"))
    ]
    slowest = {label: found[name.format("one-way")]["p99"] for label, name in titles.items()}
    title = f"99 of 100 take at most (promised: {PROMISE_MS:g} ms)"
    return [*medians, {"title": title, "unit": "ms", "bars": slowest}]


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
            "charts": charts(found),
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
