"""Where does the time of a one-way message go: microseconds of CPU for each stage of sender, Redis and owner?

Rounds without a profiler say how much CPU a message costs each of the three, rounds with py-spy and Redis'
own counters how it is shared out. Draws flame graphs of sender and owner. Exits 1 if the owner's part exceeds
40 µs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import flames
from benchmarks.machine import machine, versions, write_results
from benchmarks.report import ASSETS, SHADES
from benchmarks.service import Service, serving
from benchmarks.stages import OWNER, SENDER, commands, of_redis, shares, working
from benchmarks.throughput import PROMISED_OWNER_US, Rate, measure

SAMPLES_A_SECOND = 250
COLOURS = {
    "redis_cluster_kit/runtime/": "#f4a259",
    "redis_cluster_kit/entity/": "#f7c59f",
    "redis_cluster_kit/calling/": "#e2848b",
    "redis_cluster_kit/delivery/": "#8cb369",
    "redis_cluster_kit/redis_access/": "#5b8e9d",
    "redis_cluster_kit/": "#e8d174",
    "benchmarks/": "#bc8fb5",
}
"""Of frames by the file they are in; asyncio and everything else is grey."""


@dataclass
class Found:
    """What the rounds measured."""

    plain: Rate = field(default_factory=lambda: Rate("one-way", ask=False))
    sender: Counter[flames.Stack] = field(default_factory=Counter[flames.Stack])
    owner: Counter[flames.Stack] = field(default_factory=Counter[flames.Stack])
    redis: list[dict[str, float]] = field(default_factory=list[dict[str, float]])


class Sampler:
    """py-spy at work on one process; leaving the block ends it, then `stacks` has what it saw."""

    def __init__(self, pid: int, path: Path) -> None:
        self._pid = pid
        self._path = path

    async def __aenter__(self) -> Sampler:
        program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
        if program is None:
            raise SystemExit("py-spy is not installed: `nox -s bench -- profile` has it")
        options = ("--format", "raw", "--rate", str(SAMPLES_A_SECOND), "--duration", "300")
        self._process = subprocess.Popen(
            [program, "record", *options, "--output", str(self._path), "--pid", str(self._pid)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        await asyncio.sleep(1.0)  # it reads the interpreter's symbols first
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        said = await asyncio.to_thread(self._end)
        if not self._path.is_file():
            last = said.strip().splitlines()[-1:]
            raise SystemExit(f"py-spy may not look at process {self._pid} here: {' '.join(last)}")

    def _end(self) -> str:
        return self._process.communicate()[1]

    @property
    def stacks(self) -> Counter[flames.Stack]:
        """What was sampled while it worked."""
        return working(flames.read(self._path.read_text()))


async def run(found: Found, messages: int) -> None:
    """Measure once without a profiler, once with."""
    async with serving() as service:
        await measure(service, Rate("warm-up", ask=False), min(5_000, messages))
        before, cpu, waited = service.command_seconds(), service.redis_cpu(), _schedule(service)
        await measure(service, found.plain, messages)
        used, (ran, queued) = service.redis_cpu() - cpu, _since(waited, _schedule(service))
        took = of_redis(commands(before, service.command_seconds()), (ran + queued) / ran, used)
        found.redis.append({stage: seconds / messages * 1e6 for stage, seconds in took.items()})
        with tempfile.TemporaryDirectory(prefix="rck-profile-") as folder:
            async with (
                Sampler(os.getpid(), Path(folder) / "sender") as sender,
                Sampler(service.hosts[0].child.pid, Path(folder) / "owner") as owner,
            ):
                await measure(service, Rate("sampled", ask=False), messages)
            found.sender.update(sender.stacks)
            found.owner.update(owner.stacks)


def _schedule(service: Service) -> tuple[int, int]:
    """Return for how long the server has run, and waited for a core while it could have run."""
    ran, waited, _ = Path(f"/proc/{service.server_pid}/schedstat").read_text().split()
    return int(ran), int(waited)


def _since(before: tuple[int, int], after: tuple[int, int]) -> tuple[int, int]:
    return after[0] - before[0], after[1] - before[1]


def table(found: Found) -> dict[str, dict[str, float]]:
    """Return microseconds by place and stage."""
    used = found.plain.figures()

    def shared(total: Any, stacks: Counter[flames.Stack], stages: Any) -> dict[str, float]:
        return {stage: round(total * share, 1) for stage, share in shares(stacks, stages).items()}

    redis = {
        stage: round(statistics.median(one[stage] for one in found.redis), 1) for stage in found.redis[0]
    }
    return {
        "sender": shared(used["sender_cpu_us"], found.sender, SENDER),
        "Redis": redis,
        "owner": shared(used["owner_cpu_us"], found.owner, OWNER),
    }


def draw(found: Found) -> None:
    """Draw the flame graphs."""
    used = found.plain.figures()
    for name, stacks in (("sender", found.sender), ("owner", found.owner)):
        told = f"{used[f'{name}_cpu_us']} µs of CPU for a one-way message; the width of a frame is its share"
        root = flames.tree(stacks, f"The {name} at work")
        for shade in SHADES:
            flames.draw(root, ASSETS / f"flames-{name}-{shade}.svg", shade, COLOURS, told)


def write(found: Found, stages: dict[str, dict[str, float]], messages: int) -> None:
    """Write it down, with a chart for each place."""
    totals = {
        place: round(statistics.median(values), 1)
        for place, values in (
            ("sender", found.plain.sender_us),
            ("Redis", found.plain.redis_us),
            ("owner", found.plain.owner_us),
        )
    }
    write_results(
        "profile",
        {
            "machine": machine(),
            "versions": versions("redis", "hiredis", "msgspec", "anyio", "py-spy"),
            "messages": messages,
            "samples": {"sender": found.sender.total(), "owner": found.owner.total()},
            "cpu_us": totals | {"all": round(sum(totals.values()), 1)},
            "stages_us": stages,
            "promise_owner_us": PROMISED_OWNER_US,
            "charts": [
                {
                    "title": f"{place.title()}: {totals[place]} µs of CPU for a one-way message",
                    "unit": "µs",
                    "bars": found_here,
                }
                for place, found_here in stages.items()
            ],
        },
    )


def main() -> int:
    """Measure, print, draw, write down; 1 if the owner needs more than is promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    found = Found()
    for turn in range(chosen.rounds):
        asyncio.run(run(found, chosen.messages))
        print(f"round {turn + 1}: owner {found.plain.owner_us[-1]:.1f} µs a message", flush=True)
    stages = table(found)
    for place, parts in stages.items():
        print(place)
        for stage, used in parts.items():
            print(f"  {stage:40}{used:>7.1f} µs")
    draw(found)
    write(found, stages, chosen.messages)
    owner = statistics.median(found.plain.owner_us)
    kept = owner <= PROMISED_OWNER_US
    print(
        f"{owner:.1f} µs of the owner's CPU a message, at most {PROMISED_OWNER_US:g} promised"
        f"{'' if kept else ' — NOT KEPT'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
