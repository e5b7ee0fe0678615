"""How late is a scheduled message, and what do activation and passivation cost?

Lateness from the time a message was to be delivered to its handler, on an idle pair of processes. Then the
first message of entities that are not in memory beside the next of those that are, and the CPU of their
passivation. Exits 1 if the median lateness reaches 5 ms or the worst 50 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from benchmarks.latency import spread
from benchmarks.machine import machine, versions, write_results
from benchmarks.service import NOTE, Account, Brief, Service, now_ns, serving

MEDIAN_MS, WORST_MS = 5.0, 50.0
APART = timedelta(milliseconds=23)
"""Not a divisor of anything the owner does regularly."""
AHEAD = timedelta(milliseconds=500)
ASKED_ENTITIES = 300


@dataclass
class Found:
    """What each round measured."""

    late_ns: list[int] = field(default_factory=list[int])
    first_ns: list[int] = field(default_factory=list[int])
    next_ns: list[int] = field(default_factory=list[int])
    activation_us: list[float] = field(default_factory=list[float])
    turn_us: list[float] = field(default_factory=list[float])
    passivation_us: list[float] = field(default_factory=list[float])


async def lateness(service: Service, number: int) -> list[int]:
    """Schedule messages one after the other, to many entities; return how late each was handled."""
    await service.take_stamps(0)
    for each in range(number):
        due = datetime.now(UTC) + AHEAD
        due = due.replace(microsecond=due.microsecond // 1000 * 1000)
        call = service.cluster.entity(Account, f"due{each % 100}").stamp.options(deliver_at=due)
        await call.send(_on_our_clock(due), NOTE)
        await asyncio.sleep(APART.total_seconds())
    late = await service.take_stamps(number)
    early = [one for one in late if one < -1_000_000]
    if early:
        raise SystemExit(
            f"{len(early)} of {number} were delivered before their time, by {min(early) / 1e6} ms"
        )
    return late


def _on_our_clock(due: datetime) -> int:
    """Return when `due` is, in the nanoseconds that handlers read; both clocks are read in one breath."""
    while True:
        before, wall, after = now_ns(), time.time_ns(), now_ns()
        if after - before < 50_000:
            return before + round(due.timestamp() * 1e3) * 1_000_000 - wall


async def activation(service: Service, found: Found, entities: int, turn: int) -> None:
    """Ask entities twice, one by one; then measure the CPU of many first messages, next ones, and leaving."""
    for number in range(ASKED_ENTITIES):
        alice = service.cluster.entity(Account, f"first{turn}-{number}")
        for took in (found.first_ns, found.next_ns):
            asked = now_ns()
            await alice.deposit(1, NOTE)
            took.append(now_ns() - asked)
    idle, left = await _idle_cpu(service), await service.total("passivated")
    found.activation_us.append(await _cpu_of_touching(service, entities))
    found.turn_us.append(await _cpu_of_touching(service, entities))
    since, before = time.monotonic(), await service.total("cpu")
    while await service.total("passivated") < left + entities:
        await asyncio.sleep(0.1)
    spent = await service.total("cpu") - before - idle * (time.monotonic() - since)
    found.passivation_us.append(spent / entities * 1e6)


async def _cpu_of_touching(service: Service, entities: int) -> float:
    cpu = await service.total("cpu")
    await service.touch(Brief, entities)
    return (await service.total("cpu") - cpu) / entities * 1e6


async def _idle_cpu(service: Service) -> float:
    """Return the CPU seconds a second that the host uses for nothing."""
    began, cpu = time.monotonic(), await service.total("cpu")
    await asyncio.sleep(1.0)
    return (await service.total("cpu") - cpu) / (time.monotonic() - began)


async def run(found: Found, messages: int, entities: int, turn: int) -> None:
    """Measure everything once."""
    async with serving() as service:
        await lateness(service, 100)  # the entities are in memory now
        found.late_ns += await lateness(service, messages)
        await activation(service, found, entities, turn)


def main() -> int:
    """Measure, print, write down; 1 if scheduled messages are later than promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500, help="scheduled in a round")
    parser.add_argument("--entities", type=int, default=3_000, help="activated and passivated in a round")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    found = Found()
    for turn in range(chosen.rounds):
        asyncio.run(run(found, chosen.messages, chosen.entities, turn))
        print(f"round {turn + 1}: {spread(found.late_ns)['p50']} ms late in the median so far", flush=True)
    rows = {
        "scheduled message, late by": spread(found.late_ns),
        "asked, not in memory": spread(found.first_ns),
        "asked, in memory": spread(found.next_ns),
    }
    costs = {
        "activation and first turn": found.activation_us,
        "turn of an entity in memory": found.turn_us,
        "passivation": found.passivation_us,
    }
    cpu = {name: round(statistics.median(values), 1) for name, values in costs.items()}
    print(f"{'ms':30}{'p50':>9}{'p99':>9}{'max':>9}")
    for title, one in rows.items():
        print(f"{title:30}{one['p50']:>9.3f}{one['p99']:>9.3f}{one['max']:>9.3f}")
    print(", ".join(f"{name}: {value} µs of the owner's CPU" for name, value in cpu.items()))
    late = rows["scheduled message, late by"]
    write_results(
        "scheduled",
        {
            "machine": machine(),
            "versions": versions("redis", "hiredis", "msgspec", "anyio"),
            "messages": len(found.late_ns),
            "figures": rows,
            "unit": "ms",
            "owner_cpu_us": cpu,
            "limits_ms": {"median": MEDIAN_MS, "worst": WORST_MS},
            "charts": [
                {
                    "title": "A scheduled message is late by",
                    "unit": "ms",
                    "bars": {"median": late["p50"], "p99": late["p99"], "worst": late["max"]},
                    "promise": WORST_MS,
                    "most": True,
                },
                {"title": "The owner's CPU for an entity", "unit": "µs", "bars": cpu},
            ],
        },
    )
    kept = late["p50"] < MEDIAN_MS and late["max"] < WORST_MS
    print(
        f"late by {late['p50']} ms in the median, {late['max']} ms at worst: promised below {MEDIAN_MS:g} "
        f"and {WORST_MS:g}{'' if kept else ' — NOT KEPT'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
