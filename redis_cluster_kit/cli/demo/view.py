"""How the demo looks: a live picture on a terminal, plain lines elsewhere, nothing where JSON is asked for.

On a terminal what is told scrolls up, and the picture stands below it, never higher than the terminal.

The row of letters is the shards in order, each with the number of the pod that owns it.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import anyio
import click

from redis_cluster_kit.cli.output import plain_table, rich_table
from redis_cluster_kit.clock import Clock
from redis_cluster_kit.observe import Snapshot

from .bank import ACCOUNTS, AUDITOR
from .customers import Customers
from .figures import Pace, pace_now, together
from .oversight import Oversight, auditor_in
from .pods import Pod, Pods
from .watching import Watcher, strokes

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

HEADINGS = ("pod", "pid", "state", "shards", "fences", "msgs/s", "p50 ms", "p99 ms", "leads")
LETTERS = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_magenta")
FREE = "·"
_ROW = 50
_REDRAW_EVERY = 0.1
_HEADING = 6
"""Lines of the picture that are always there: the table's heading and what separates its parts."""


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
    """What is told, line by line, and under it a picture that is drawn again and again."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        super().__init__()
        self.scene: Scene | None = None
        self._console = console or Console(highlight=False)
        self._live = RichLive(console=self._console, auto_refresh=False, transient=True)

    def say(self, text: str) -> None:
        """Print it above the picture."""
        super().say(text)
        before = f"[{self.said[-1][0]:5.1f} s] "
        for line in wrapped(before + text, self._console.width, indent=len(before)):
            self._console.print(line, markup=False, highlight=False)

    async def draw(self) -> None:
        """Draw until cancelled; the picture goes with the pods, what was told stays."""
        with self._live:
            while True:
                self._live.update(self.picture(), refresh=True)
                await anyio.sleep(_REDRAW_EVERY)

    def picture(self) -> RenderableType:
        """Return what is to be seen now: no higher than the terminal, with room for a line that is told."""
        from rich.console import Group
        from rich.text import Text

        if self.scene is None:
            return Text()
        bank = [Text(line, no_wrap=True, overflow="ellipsis") for line in self.scene.bank_lines()]
        shards = self.scene.coloured_map(self._console.width)
        rows, more = self.scene.rows_within(self._console.height - _HEADING - len(bank) - len(shards) - 1)
        return Group(Text(), rich_table(HEADINGS, rows), Text(more), *shards, Text(), *bank)


def wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """Return a text in lines; those after the first are indented."""
    return textwrap.wrap(text, width, subsequent_indent=" " * indent)


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
        leader, _ = auditor_in(snapshot)
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

    def rows_within(self, room: int) -> tuple[list[Sequence[object]], str]:
        """Return as many rows as there is room for, those that serve first, and how many are left out."""
        rows = self.rows()
        if len(rows) <= room:
            return rows, ""
        shown = sorted(rows, key=lambda row: row[2] != "serving")[: max(1, room)]
        return [row for row in rows if row in shown], f"and {len(rows) - len(shown)} more"

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

    def coloured_map(self, width: int) -> list[Text]:
        """Return the same in colours, in as few lines as the width allows."""
        from rich.text import Text

        owners = self._owners()
        row = 2 * _ROW if width >= 2 * _ROW else _ROW
        return [
            Text.assemble(*map(_letter, owners[start : start + row])) for start in range(0, len(owners), row)
        ]

    def _owners(self) -> list[int | None]:
        known = self._pods.by_runner()
        owners = (known.get(sight.owner or "") for sight in self._snapshot.shards)
        return [None if pod is None else pod.number - 1 for pod in owners]


def _letter(number: int | None) -> tuple[str, str]:
    if number is None:
        return FREE, "dim"
    return LETTERS[number % len(LETTERS)], COLOURS[number % len(COLOURS)]


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
