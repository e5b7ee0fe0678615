"""How many messages a second do others send and handle through Redis, on the same machine in the same run?

One producer process, one consumer process, about 100 bytes, a handler that does nothing, a server of its own
each time, in turn with the kit's one-way rate (`throughput`). Exits 1 unless ours is at least three times the
best.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from dataclasses import dataclass, field
from typing import Any

from benchmarks.latency import one_way, spread
from benchmarks.machine import machine, versions, write_results
from benchmarks.peers.catalogue import OURS, PEERS, Does, Peer
from benchmarks.peers.environments import NotInstalledError, environment, version
from benchmarks.peers.running import measure as measure_peer
from benchmarks.service import serving
from benchmarks.throughput import Rate
from benchmarks.throughput import measure as measure_rate

PROMISE, AIM = 3.0, 5.0
OUR_TITLE = "redis_cluster_kit"
NOTE = "others: no-op handlers on uvloop where they can; ours: state saved each turn, on plain asyncio"


@dataclass
class Row:
    """What was measured of one library."""

    title: str
    does: Does
    peer: Peer | None = None
    """None: it is us."""
    version: str = ""
    rates: list[float] = field(default_factory=list[float])
    sender_us: list[float] = field(default_factory=list[float])
    p50_ms: list[float] = field(default_factory=list[float])
    p99_ms: list[float] = field(default_factory=list[float])
    skipped: str = ""

    @property
    def rate(self) -> float:
        """The median of messages a second."""
        return statistics.median(self.rates)

    def figures(self) -> dict[str, Any]:
        """What is written down."""
        if self.skipped:
            return {"messages_per_second": f"not measured: {self.skipped}"}
        found: dict[str, Any] = {
            "messages_per_second": round(self.rate),
            "rounds": [round(rate) for rate in self.rates],
            "sender_cpu_us": round(statistics.median(self.sender_us), 1),
        }
        for name, values in (("one_way_p50_ms", self.p50_ms), ("one_way_p99_ms", self.p99_ms)):
            if values:
                found[name] = round(statistics.median(values), 3)
        return found | {"version": self.version} | self.does.figures()


def measure(row: Row, messages: int, stamps: int) -> None:
    """Measure one row once; a peer that cannot be measured is skipped from then on, and the table tells."""
    if row.peer is None:
        asyncio.run(_measure_ours(row, messages, stamps))
        return
    try:
        found = measure_peer(row.peer, messages, stamps)
    except NotInstalledError as error:
        row.skipped = str(error)
        return
    row.rates.append(found["per_second"])
    row.sender_us.append(found["sender_cpu_us"])
    if "p50_ms" in found:
        row.p50_ms.append(found["p50_ms"])
        row.p99_ms.append(found["p99_ms"])


async def _measure_ours(row: Row, messages: int, stamps: int) -> None:
    rate = Rate("one-way", ask=False)
    async with serving() as service:
        await measure_rate(service, Rate("warm-up", ask=False), min(5_000, messages))
        await measure_rate(service, rate, messages)
        if stamps:
            await one_way(service, 100)
            found = spread(await one_way(service, stamps))
            row.p50_ms.append(found["p50"])
            row.p99_ms.append(found["p99"])
    row.rates += rate.per_second
    row.sender_us += rate.sender_us


def prepare(names: list[str]) -> list[Row]:
    """Install what is to be measured; ours is the first row."""
    rows = [Row(OUR_TITLE, OURS, version=versions("redis-cluster-kit")["redis-cluster-kit"])]
    for peer in PEERS:
        if names and peer.module not in names:
            continue
        row = Row(peer.title, peer.does, peer)
        try:
            environment(peer)
            row.version = version(peer)
        except NotInstalledError as error:
            row.skipped = str(error)
            print(error, flush=True)
        rows.append(row)
    return rows


def report(rows: list[Row]) -> None:
    """Print the table."""
    print(f"{'':20}{'messages/s':>12}{'ours':>8}{'p50 ms':>9}{'p99 ms':>9}  what it does for a message")
    for row in rows:
        if row.skipped:
            print(f"{row.title:20}  {row.skipped}")
            continue
        waits = "".join(
            f"{statistics.median(v):>9.2f}" if v else f"{'':>9}" for v in (row.p50_ms, row.p99_ms)
        )
        does = row.does
        told = f"ack {does.acknowledged}; order {does.order}; dedupe {does.dedupe}; state {does.state}"
        print(f"{row.title:20}{row.rate:>12,.0f}{rows[0].rate / row.rate:>7.1f}×{waits}  {told}")
    print(NOTE)


def write(rows: list[Row], best: Row, messages: tuple[int, int]) -> None:
    """Write it down, with a chart."""
    measured = sorted((row for row in rows if not row.skipped), key=lambda row: -row.rate)
    waited = sorted((row for row in measured if row.p50_ms), key=lambda row: statistics.median(row.p50_ms))
    write_results(
        "against_peers",
        {
            "machine": machine(),
            "versions": versions("redis", "hiredis", "msgspec", "anyio"),
            "messages_a_round": {"ours": messages[0], "theirs": messages[1]},
            "note": NOTE,
            "figures": {row.title: row.figures() for row in rows},
            "best": best.title,
            "ours_to_the_best": round(rows[0].rate / best.rate, 2),
            "promise": PROMISE,
            "charts": [
                {
                    "title": f"Sent and handled: ours at least {PROMISE:g} × the best of the others",
                    "unit": "messages/s",
                    "bars": {row.title: round(row.rate) for row in measured},
                    "promise": round(PROMISE * best.rate),
                },
                {
                    "title": "One message on its way, half of them at most",
                    "unit": "ms",
                    "bars": {row.title: round(statistics.median(row.p50_ms), 3) for row in waited},
                },
            ],
        },
    )


def main() -> int:
    """Measure, print, write down; 1 if ours is less than promised, or nobody could be compared with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(dict.fromkeys(p.module for p in PEERS))}")
    parser.add_argument("--messages", type=int, default=50_000, help="ours in a round")
    parser.add_argument("--theirs", type=int, default=10_000, help="each peer's in a round")
    parser.add_argument("--stamps", type=int, default=500, help="messages timed one by one; 0: none")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    rows = prepare(chosen.names)
    for turn in range(chosen.rounds):
        place = turn % len(rows)
        for row in rows[place:] + rows[:place]:  # none is always the first
            if not row.skipped:
                measure(row, chosen.messages if row.peer is None else chosen.theirs, chosen.stamps)
                said = row.skipped or f"{row.rates[-1]:,.0f}/s"
                print(f"round {turn + 1}: {row.title} {said}", flush=True)
    report(rows)
    others = [row for row in rows[1:] if not row.skipped]
    if not others:
        print("no peer could be measured: nothing to compare with")
        return 1
    best = max(others, key=lambda row: row.rate)
    write(rows, best, (chosen.messages, chosen.theirs))
    factor, missing = rows[0].rate / best.rate, [row.title for row in rows if row.skipped]
    without = f", without {', '.join(missing)}" if missing else ""
    verdict = "at least" if factor >= PROMISE else "BELOW"
    print(f"{factor:.1f} × the best, {best.title}{without}: {verdict} {PROMISE:g} (aim {AIM:g})")
    return 0 if factor >= PROMISE else 1


if __name__ == "__main__":
    sys.exit(main())
