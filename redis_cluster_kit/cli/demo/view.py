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

from .pods import Pod, Pods

HEADINGS = ("pod", "pid", "state", "shards", "fences")
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
            for line in (*plain_table(HEADINGS, self.scene.rows()), *self.scene.map_lines()):
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
        return Group(rich_table(HEADINGS, self.scene.rows()), self.scene.coloured_map(), *lines)


class Scene:
    """What both views show: the pods and the shards as they were seen last."""

    def __init__(self, pods: Pods, look: Any) -> None:
        self._pods = pods
        self._look = look

    @property
    def _snapshot(self) -> Snapshot:
        snapshot: Snapshot = self._look()
        return snapshot

    def rows(self) -> list[Sequence[object]]:
        """Return a row for each pod."""
        snapshot = self._snapshot
        return [
            (pod.name, pod.child.pid, pod.state, snapshot.owned_by(pod.runner), _fences(snapshot, pod))
            for pod in self._pods.all
            if pod.runner
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
