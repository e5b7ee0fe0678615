"""How the demo looks: a live table on a terminal, plain lines elsewhere, nothing where JSON is asked for.

The row of letters is the shards in order, each with the number of the pod that owns it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

import anyio
import click

from redis_cluster_kit.cli.output import plain_table, rich_table
from redis_cluster_kit.clock import Clock
from redis_cluster_kit.observe import Snapshot

from .bank import ACCOUNTS, AUDITOR
from .customers import Customers
from .figures import Pace, pace_now, together
from .oversight import Oversight, leader_in
from .pods import Pod, Pods
from .watching import Watcher, strokes

HEADINGS = ("pod", "pid", "state", "shards", "fences", "messages/s", "p50 ms", "p99 ms", "leads")
LETTERS = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_magenta")
FREE = "·"
_ROW = 50
_REDRAW_EVERY = 0.1


class View(Protocol):
    """What the story needs of a view."""

    def say(self, text: str) -> None:
        """Tell what happens."""
        ...


class Silent:
    """Keeps what was said, for JSON."""

    def __init__(self) -> None:
        self._began = Clock.boot()
        self.said: list[tuple[float, str]] = []

    def say(self, text: str) -> None:
        """Keep it, with its time since the beginning."""
        self.said.append((round(Clock.boot() - self._began, 2), text))


class Plain(Silent):
    """Lines, each with its time; after each the pods and the shards."""

    def __init__(self) -> None:
        super().__init__()
        self.scene: Scene | None = None

    def say(self, text: str) -> None:
        """Print it, and how things are."""
        super().say(text)
        click.echo(f"[{self.said[-1][0]:5.1f} s] {text}")
        if self.scene is not None:
            table = plain_table(HEADINGS, self.scene.rows())
            for line in (*table, *self.scene.map_lines(), *self.scene.bank_lines()):
                click.echo(f"          {line}")
        sys.stdout.flush()


class Live(Silent):
    """A table that is drawn again and again, with the last lines under it."""

    def __init__(self, console: Any = None) -> None:
        from rich.live import Live as RichLive

        super().__init__()
        self.scene: Scene | None = None
        self._live = RichLive(console=console, auto_refresh=False)

    async def draw(self) -> None:
        """Draw until cancelled; the last picture stays."""
        with self._live:
            try:
                while True:
                    self._live.update(self.picture(), refresh=True)
                    await anyio.sleep(_REDRAW_EVERY)
            finally:
                self._live.update(self.picture(), refresh=True)

    def picture(self) -> Any:
        """Return what is to be seen now."""
        from rich.console import Group
        from rich.text import Text

        lines = [Text(f"[{at:5.1f} s] {text}") for at, text in self.said]
        if self.scene is None:
            return Group(*lines)
        table, bank = rich_table(HEADINGS, self.scene.rows()), map(Text, self.scene.bank_lines())
        return Group(table, self.scene.coloured_map(), *bank, Text(), *lines)


class Scene:
    """What both views show: the pods, the shards and the bank as they were seen last."""

    def __init__(self, pods: Pods, watcher: Watcher, customers: Customers, oversight: Oversight) -> None:
        self._pods = pods
        self._watcher = watcher
        self._customers = customers
        self._oversight = oversight

    @property
    def _snapshot(self) -> Snapshot:
        return self._watcher.latest

    def rows(self) -> list[Sequence[object]]:
        """Return a row for each pod."""
        snapshot = self._snapshot
        leader = leader_in(snapshot)
        return [
            (
                pod.name,
                pod.child.pid,
                pod.state,
                snapshot.owned_by(pod.runner),
                _fences(snapshot, pod),
                *_pace(pace_now(pod) if pod.state == "serving" else Pace()),
                AUDITOR if pod.runner == leader else "",
            )
            for pod in self._pods.all
            if pod.runner
        ]

    def bank_lines(self) -> list[str]:
        """Return the bank in a few lines."""
        pace = together(pace_now(pod) for pod in self._pods.serving)
        p50, p99 = _milliseconds(pace.p50), _milliseconds(pace.p99)
        bank, audit = self._customers, self._oversight.audit
        struck = strokes(self._pods.all)
        clock = f"{len({stroke.at for stroke in struck})} seconds struck"
        if struck:
            clock += f", the last one on pod-{struck[-1].pod}"
        verdict = f"WRONG in {audit.wrong} rounds" if audit.wrong else "every book adds up"
        return [
            f"{pace.rate:,.0f} messages/s, delivered in {p50} ms (p50) and {p99} ms (p99)",
            f"{self._oversight.waiting:,} messages in mailboxes, {pace.fenced} writes fenced off",
            f"{bank.acknowledged:,} transfers acknowledged, {bank.rate_now:,.0f}/s, {bank.underway:,} open",
            f"audit {audit.rounds}: {len(ACCOUNTS)} books, {audit.underway:,} on its way, {verdict}",
            f"clock: {clock}",
        ]

    def map_lines(self) -> list[str]:
        """Return the shards in order, each as its owner's letter."""
        letters = "".join(
            LETTERS[number % len(LETTERS)] if number is not None else FREE for number in self._owners()
        )
        return [letters[start : start + _ROW] for start in range(0, len(letters), _ROW)]

    def coloured_map(self) -> Any:
        """Return the same in colours."""
        from rich.text import Text

        text = Text()
        for place, number in enumerate(self._owners()):
            if place and place % _ROW == 0:
                text.append("\n")
            if number is None:
                text.append(FREE, style="dim")
            else:
                text.append(LETTERS[number % len(LETTERS)], style=COLOURS[number % len(COLOURS)])
        text.append("\n")
        return text

    def _owners(self) -> list[int | None]:
        known = self._pods.by_runner()
        owners = (known.get(sight.owner or "") for sight in self._snapshot.shards)
        return [None if pod is None else pod.number - 1 for pod in owners]


def _fences(snapshot: Snapshot, pod: Pod) -> str:
    found = [
        sight.installed.fence
        for sight in snapshot.shards
        if sight.owner == pod.runner and sight.installed is not None
    ]
    return f"{min(found)}-{max(found)}" if found else "-"


def _pace(pace: Pace) -> tuple[str, str, str]:
    return f"{pace.rate:,.0f}", _milliseconds(pace.p50), _milliseconds(pace.p99)


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f}"
