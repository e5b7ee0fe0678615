"""Does a message cost the same whatever the number of entities, shards, hosts, and messages before it?

One-way throughput in turn at each size, each with a server and processes of its own, compared with 1,000
entities on 100 shards and one host. Exits 1 if one is more than a quarter slower. More hosts than there are
cores are shown, not judged.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks.latency import one_way, spread
from benchmarks.machine import machine, versions, write_results
from benchmarks.service import Account, StalledError, serving
from benchmarks.throughput import ENTITIES, Rate, measure

WITHIN = 0.25
SHARDS = 100
HOUR = 3600.0
STAMPS = 300


@dataclass
class Size:
    """One row: how many of everything, and what each round of it measured."""

    title: str
    entities: int = ENTITIES
    shards: int = SHARDS
    hosts: int = 1
    before: int = 0
    """Messages handled before the measure."""
    for_seconds: float = 0.0
    """The same as a time: messages for so long."""
    rate: Rate = field(default_factory=lambda: Rate("one-way", ask=False))
    p50_ms: list[float] = field(default_factory=list[float])
    handled: int = 0
    stalled: str = ""

    @property
    def is_judged(self) -> bool:
        """Whether this machine has a core for each host."""
        return self.hosts <= len(os.sched_getaffinity(0))

    @property
    def per_second(self) -> float:
        """The median of messages a second; 0 if it stalled."""
        return 0.0 if self.stalled else statistics.median(self.rate.per_second)

    def figures(self, base: Size) -> dict[str, Any]:
        """What is written down."""
        if self.stalled:
            return {"per_second": "stalled"}
        return self.rate.figures() | {
            "share": round(self.per_second / base.per_second, 2),
            "one_way_p50_ms": round(statistics.median(self.p50_ms), 3),
            "judged": "yes" if self.is_judged else "no: more hosts than cores",
        }


def sizes(before: int, *, long: bool) -> list[Size]:
    """Return the rows; the first is what the others are compared with."""
    last = (
        Size("after an hour", for_seconds=HOUR) if long else Size(f"after {before:,} messages", before=before)
    )
    return [
        Size(f"{ENTITIES:,} entities, {SHARDS} shards, 1 host"),
        *(Size(f"{number:,} entities", entities=number) for number in (100, 10_000, 100_000)),
        Size("1,000 shards", shards=1_000),
        *(Size(f"{number} hosts", hosts=number) for number in (2, 4)),
        last,
    ]


async def run(size: Size, messages: int) -> None:
    """Measure one size once, with every entity in memory before."""
    async with serving(size.hosts, shards=size.shards) as service:
        warm_up = Rate("warm-up", ask=False)
        await service.touch(Account, size.entities)
        await measure(service, warm_up, min(5_000, messages), entities=size.entities)
        size.handled, end = 0, time.monotonic() + size.for_seconds
        while size.handled < size.before or time.monotonic() < end:
            await measure(service, warm_up, messages, entities=size.entities)
            size.handled += messages
        await measure(service, size.rate, messages, entities=size.entities)
        size.p50_ms.append(spread(await one_way(service, STAMPS))["p50"])


async def run_all(found: list[Size], messages: int, rounds: int) -> None:
    """Measure all in turn, so that a slow minute of the machine hits all; what takes an hour, only once."""
    for turn in range(rounds):
        for size in found:
            if size.stalled or (turn and size.for_seconds):
                continue
            try:
                await run(size, messages)
            except StalledError as error:
                size.stalled = str(error)
            told = f"stalled: {size.stalled}" if size.stalled else f"{size.rate.per_second[-1]:,.0f}/s"
            print(f"round {turn + 1}: {size.title} {told}", flush=True)


def is_kept(size: Size, base: Size) -> bool:
    """Whether it is at most a quarter slower."""
    return size.per_second >= (1 - WITHIN) * base.per_second


def report(found: list[Size]) -> None:
    """Print the table."""
    print(f"{'':40}{'messages/s':>12}{'':>8}{'owner µs':>10}{'p50 ms':>9}")
    for size in found:
        share = size.per_second / max(1.0, found[0].per_second)
        if size.stalled:
            print(f"{size.title:40}  stalled: BROKEN")
            continue
        verdict = "" if is_kept(size, found[0]) else "BROKEN" if size.is_judged else "not judged"
        owner, p50 = statistics.median(size.rate.owner_us), statistics.median(size.p50_ms)
        print(f"{size.title:40}{size.per_second:>12,.0f}{share:>7.0%} {owner:>10.1f}{p50:>9.3f}  {verdict}")


def write(found: list[Size], messages: int) -> None:
    """Write it down, with a chart."""
    chart = {
        "title": "Messages a second, one-way",
        "unit": "messages/s",
        "bars": {size.title: round(size.per_second) for size in found},
        "promise": round((1 - WITHIN) * found[0].per_second),
    }
    write_results(
        "flat_cost",
        {
            "machine": machine(),
            "versions": versions("redis", "hiredis", "msgspec", "anyio"),
            "messages": messages,
            "messages_before_the_last": found[-1].handled,
            "figures": {size.title: size.figures(found[0]) for size in found},
            "within": WITHIN,
            "charts": [chart],
        },
    )


def main() -> int:
    """Measure, print, write down; 1 if a size is more than a quarter slower."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument(
        "--before", type=int, default=500_000, help="messages before the last row is measured"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--long", action="store_true", help="the last row: after an hour of messages")
    chosen = parser.parse_args()
    found = sizes(chosen.before, long=chosen.long)
    asyncio.run(run_all(found, chosen.messages, chosen.rounds))
    report(found)
    write(found, chosen.messages)
    judged = [size for size in found if size.is_judged]
    slowest = min(judged, key=lambda size: size.per_second)
    share, kept = (
        slowest.per_second / max(1.0, found[0].per_second),
        all(is_kept(size, found[0]) for size in judged),
    )
    print(
        f"{slowest.title}: {share:.0%} of {found[0].per_second:,.0f} a second, at least "
        f"{1 - WITHIN:.0%} promised{'' if kept else ' — NOT KEPT'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
