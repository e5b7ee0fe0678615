"""What happens when many meet one: a hot entity, a broadcast to 10,000, a slow neighbour?

All callers send to one entity; one message goes to every entity in memory; one entity takes a second a
message beside 1,000 fast ones. Exits 1 if a broadcast misses an entity, or the fast ones' p99 more than
doubles.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks.latency import spread
from benchmarks.machine import machine, versions, write_results
from benchmarks.service import NOTE, Account, Service, Sleeper, now_ns, serving
from benchmarks.throughput import Rate, measure

FAST = 1_000
NAP = 1.0
MOST_TIMES = 2.0
FAST_PER_SECOND = 1_000


@dataclass
class Found:
    """What each round measured."""

    hot_sends: Rate = field(default_factory=lambda: Rate("one-way", ask=False))
    hot_asks: Rate = field(default_factory=lambda: Rate("asked", ask=True))
    taken: list[int] = field(default_factory=list[int])
    broadcast_seconds: list[float] = field(default_factory=list[float])
    handled_seconds: list[float] = field(default_factory=list[float])
    alone: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    beside: list[dict[str, float]] = field(default_factory=list[dict[str, float]])

    @property
    def times(self) -> float:
        """How much longer the fast ones' p99 is beside the slow one: the median of the rounds' ratios."""
        ratios = [slow["p99"] / fast["p99"] for fast, slow in zip(self.alone, self.beside, strict=True)]
        return statistics.median(ratios)


async def hot_entity(service: Service, found: Found, messages: int) -> None:
    """All callers send to one entity, then ask it."""
    await measure(service, Rate("warm-up", ask=False), min(1_000, messages), entities=1)
    await measure(service, found.hot_sends, messages, entities=1)
    await measure(service, found.hot_asks, messages // 4, entities=1)


async def broadcast(service: Service, found: Found, entities: int) -> None:
    """Send one message to all that are in memory: until all have it, and until all have handled it."""
    await service.touch(Account, entities)
    expected, before = int(await service.total("entities")), await service.commits()
    began = time.perf_counter()
    taken = await service.cluster.broadcast(Account.deposit, 1, NOTE)
    found.broadcast_seconds.append(time.perf_counter() - began)
    await service.wait_for_commits(before + taken)
    found.handled_seconds.append(time.perf_counter() - began)
    found.taken.append(taken)
    if taken < expected:
        print(f"the broadcast reached {taken} of {expected} entities", flush=True)


async def neighbour(service: Service, found: Found, seconds: float) -> None:
    """Time messages to fast entities, without and with a slow one that is at work all the while."""
    await service.touch(Account, FAST)
    found.alone.append(spread(await _fast(service, seconds)))
    slow = service.cluster.entity(Sleeper, "slow")
    naps = [await slow.nap.send(NAP) for _ in range(int(seconds / NAP) + 1)]
    began = time.perf_counter()
    found.beside.append(spread(await _fast(service, seconds)))
    for nap in naps:
        await nap.result(timeout=seconds + 30)
    if time.perf_counter() - began < NAP * len(naps) - NAP / 2:
        raise SystemExit("the slow neighbour was quicker than its naps: nothing was compared")


async def _fast(service: Service, seconds: float) -> list[int]:
    """Send at an even rate; return how long each message was on its way."""
    proxies = [service.cluster.entity(Account, f"e{number}") for number in range(FAST)]
    await service.take_stamps(0)
    sent, began = 0, time.perf_counter()
    while sent < seconds * FAST_PER_SECOND:
        due = min(int((time.perf_counter() - began) * FAST_PER_SECOND), sent + 100)
        await asyncio.gather(*(proxies[n % FAST].stamp.send(now_ns(), NOTE) for n in range(sent, due)))
        sent = max(sent, due)
        await asyncio.sleep(0.001)
    return await service.take_stamps(sent)


async def run(found: Found, messages: int, entities: int, seconds: float) -> None:
    """Measure everything once."""
    async with serving() as service:
        await neighbour(service, found, seconds)
    async with serving() as service:
        await hot_entity(service, found, messages)
    async with serving() as service:
        await broadcast(service, found, entities)


def figures(found: Found, entities: int) -> dict[str, Any]:
    """Return what is written down, beside machine and versions."""
    reached, handled = statistics.median(found.broadcast_seconds), statistics.median(found.handled_seconds)
    alone, beside = (
        {name: round(statistics.median(one[name] for one in rounds), 3) for name in rounds[0]}
        for rounds in (found.alone, found.beside)
    )
    return {
        "figures": {"1,000 fast entities": alone, "beside one that takes a second": beside},
        "unit": "ms",
        "p99_times": round(found.times, 2),
        "most_times": MOST_TIMES,
        "hot_entity": {"one_way": found.hot_sends.figures(), "asked": found.hot_asks.figures()},
        "broadcast": {
            "entities": entities,
            "taken": min(found.taken),
            "reached_all_ms": round(reached * 1e3, 1),
            "handled_by_all_ms": round(handled * 1e3, 1),
            "handled_per_second": round(min(found.taken) / handled),
        },
        "charts": [
            {
                "title": f"99 of 100 messages to {FAST:,} fast entities take at most",
                "unit": "ms",
                "bars": {"alone": alone["p99"], "beside one that takes a second": beside["p99"]},
                "promise": round(MOST_TIMES * alone["p99"], 3),
                "most": True,
            },
            {
                "title": "One entity that all send to, one message after the other",
                "unit": "messages/s",
                "bars": {
                    "one-way": found.hot_sends.figures()["per_second"],
                    "asked": found.hot_asks.figures()["per_second"],
                },
            },
            {
                "title": f"A broadcast to {entities:,} entities",
                "unit": "ms",
                "bars": {
                    "all have it": round(reached * 1e3, 1),
                    "all have handled it": round(handled * 1e3, 1),
                },
            },
        ],
    }


def report(told: dict[str, Any]) -> None:
    """Print the tables."""
    print(f"{'ms':34}{'p50':>9}{'p99':>9}{'max':>9}")
    for title, one in told["figures"].items():
        print(f"{title:34}{one['p50']:>9.3f}{one['p99']:>9.3f}{one['max']:>9.3f}")
    for name, rate in told["hot_entity"].items():
        print(f"one hot entity, {name}: {rate['per_second']:,}/s, owner {rate['owner_cpu_us']} µs")
    fan = told["broadcast"]
    print(
        f"broadcast: {fan['taken']:,} entities have it after {fan['reached_all_ms']} ms, "
        f"all have handled it after {fan['handled_by_all_ms']} ms"
    )


def main() -> int:
    """Measure, print, write down; 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000, help="to the hot entity")
    parser.add_argument("--entities", type=int, default=10_000, help="that a broadcast reaches")
    parser.add_argument("--seconds", type=float, default=6.0, help="beside the slow neighbour")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    found = Found()
    for turn in range(chosen.rounds):
        asyncio.run(run(found, chosen.messages, chosen.entities, chosen.seconds))
        print(f"round {turn + 1}: hot {found.hot_sends.per_second[-1]:,.0f}/s", flush=True)
    told = figures(found, chosen.entities)
    report(told)
    write_results(
        "crowd",
        {"machine": machine(), "versions": versions("redis", "hiredis", "msgspec", "anyio"), **told},
    )
    kept = found.times <= MOST_TIMES and min(found.taken) >= chosen.entities
    print(
        f"p99 beside a slow neighbour {found.times:.1f} × (at most {MOST_TIMES:g}), broadcast to "
        f"{min(found.taken):,} of {chosen.entities:,}{'' if kept else ' — NOT KEPT'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
