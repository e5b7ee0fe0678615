"""How many messages a second go from one sender process to one hosting process, state written each turn?

One-way and asked, 1,000 entities, about 100 bytes each, on an embedded server of its own; in turn with what
redis-py does by hand (`by_hand`). Says where the CPU time goes too. Exits 1 below the promised rates.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from benchmarks.by_hand import by_hand
from benchmarks.machine import machine, versions, write_results
from benchmarks.service import NOTE, Account, Service, cpu_seconds, serving
from redis_cluster_kit import MailboxFullError
from redis_cluster_kit.embedded import RedisServer

ENTITIES = 1_000
CALLERS = 200
PROMISED_SENDS, PROMISED_ASKS = 25_000.0, 10_000.0
PROMISED_OWNER_US = 40.0


@dataclass
class Rate:
    """What one way of calling was measured at, a figure a round."""

    title: str
    ask: bool
    per_second: list[float] = field(default_factory=list[float])
    sender_us: list[float] = field(default_factory=list[float])
    owner_us: list[float] = field(default_factory=list[float])
    redis_us: list[float] = field(default_factory=list[float])

    def figures(self) -> dict[str, float | list[int]]:
        """Return medians, and every round's rate."""
        return {
            "per_second": round(statistics.median(self.per_second)),
            "rounds": [round(rate) for rate in self.per_second],
            "sender_cpu_us": round(statistics.median(self.sender_us), 1),
            "owner_cpu_us": round(statistics.median(self.owner_us), 1),
            "redis_cpu_us": round(statistics.median(self.redis_us), 1),
        }


async def measure(service: Service, rate: Rate, messages: int, *, entities: int = ENTITIES) -> None:
    """One round: callers share the messages; the round ends when every turn is committed."""
    proxies = [service.cluster.entity(Account, f"e{number}") for number in range(entities)]
    before = await service.commits()
    owner, redis, own = await _cpu(service)
    began = time.perf_counter()
    numbers = iter(range(messages))
    await asyncio.gather(*(_call_all(proxies, numbers, ask=rate.ask) for _ in range(CALLERS)))
    await service.wait_for_commits(before + messages)
    took = time.perf_counter() - began
    owner_after, redis_after, own_after = await _cpu(service)
    rate.per_second.append(messages / took)
    rate.sender_us.append((own_after - own) / messages * 1e6)
    rate.owner_us.append((owner_after - owner) / messages * 1e6)
    rate.redis_us.append((redis_after - redis) / messages * 1e6)


async def _call_all(proxies: list[Account], numbers: object, *, ask: bool) -> None:
    for number in numbers:  # type: ignore[attr-defined]  # one iterator for all callers
        deposit = proxies[number % len(proxies)].deposit
        call: Callable[[int, str], Awaitable[object]] = deposit if ask else deposit.send
        while True:
            try:
                await call(1, NOTE)
                break
            except MailboxFullError:
                await asyncio.sleep(0.005)  # the owner is behind: a sender that waits is part of the measure


async def _cpu(service: Service) -> tuple[float, float, float]:
    owners = sum([(await one.figures())["cpu"] for one in service.hosts])
    return owners, service.redis_cpu(), cpu_seconds()


async def run(messages: int, rounds: int) -> tuple[list[Rate], list[float]]:
    """Measure both ways in turn, and what is done by hand in messages a second."""
    rates, floor_rates = [Rate("one-way", ask=False), Rate("asked", ask=True)], list[float]()
    with RedisServer.start() as server:
        async with serving() as service, by_hand(server.url) as floor:
            await floor.rate(min(5_000, messages), ENTITIES)
            for rate in rates:
                await measure(service, Rate("warm-up", ask=rate.ask), min(5_000, messages))
            for turn in range(rounds):
                floor_rates.append(await floor.rate(messages, ENTITIES))
                print(f"round {turn + 1}: by hand {floor_rates[-1]:,.0f}/s", flush=True)
                for rate in rates:
                    await measure(service, rate, messages)
                    print(f"round {turn + 1}: {rate.title} {rate.per_second[-1]:,.0f}/s", flush=True)
    return rates, floor_rates


def report(rates: list[Rate]) -> None:
    """Print the table."""
    print(f"{ENTITIES} entities, {CALLERS} callers, one sender, one host; medians")
    print(f"{'':10}{'messages/s':>12}{'sender µs':>11}{'owner µs':>10}{'server µs':>11}")
    for rate in rates:
        found = rate.figures()
        print(
            f"{rate.title:10}{found['per_second']:>12,}{found['sender_cpu_us']:>11}"
            f"{found['owner_cpu_us']:>10}{found['redis_cpu_us']:>11}"
        )


def charts(rates: list[Rate], floor: float) -> list[dict[str, object]]:
    """The rates beside what is promised, and where the CPU time of a message goes."""
    sent, asked = (rate.figures() for rate in rates)
    places = {"sender": "sender_cpu_us", "Redis": "redis_cpu_us", "owner": "owner_cpu_us"}
    by_place = {place: {"one-way": sent[name], "asked": asked[name]} for place, name in places.items()}
    return [
        {
            "title": "Sent, handled, state saved: one process to one other",
            "unit": "messages/s",
            "bars": {"the kit": sent["per_second"], "redis-py by hand, in pipelines of 100": round(floor)},
            "promise": PROMISED_SENDS,
        },
        {
            "title": f"Asked and answered, {CALLERS} callers",
            "unit": "asks/s",
            "bars": {"the kit": asked["per_second"]},
            "promise": PROMISED_ASKS,
        },
        {
            "title": "CPU for a message",
            "unit": "µs",
            "bars": {
                f"{place}, {way}": used for place, ways in by_place.items() for way, used in ways.items()
            },
        },
    ]


def main() -> int:
    """Measure, print, write down; 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    rates, floor_rates = asyncio.run(run(chosen.messages, chosen.rounds))
    floor = statistics.median(floor_rates)
    report(rates)
    print(f"by hand   {floor:>12,.0f}")
    sends, asks = (statistics.median(rate.per_second) for rate in rates)
    write_results(
        "throughput",
        {
            "machine": machine(),
            "versions": versions("redis", "hiredis", "msgspec", "anyio"),
            "entities": ENTITIES,
            "callers": CALLERS,
            "messages": chosen.messages,
            "figures": {rate.title: rate.figures() for rate in rates},
            "by_hand_per_second": round(floor),
            "promises": {
                "one-way": PROMISED_SENDS,
                "asked": PROMISED_ASKS,
                "owner_cpu_us": PROMISED_OWNER_US,
            },
            "charts": charts(rates, floor),
        },
    )
    owner = statistics.median(rates[0].owner_us)
    kept = sends >= PROMISED_SENDS and asks >= PROMISED_ASKS and owner <= PROMISED_OWNER_US
    print(
        f"{sends:,.0f} one-way and {asks:,.0f} asks a second, owner {owner:.0f} µs a message: "
        f"promised {PROMISED_SENDS:,.0f}, {PROMISED_ASKS:,.0f} and {PROMISED_OWNER_US:g}"
        f"{'' if kept else ' — NOT KEPT'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
