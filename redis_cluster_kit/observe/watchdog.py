"""A thread that sees whether the event loop turns: what is blocked cannot say so itself.

It asks the loop to answer and measures how long that takes, on the real clock. It keeps nothing alive and
ends nothing: leases end by themselves when their loop is stuck, and probes read what it saw.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.settings import HealthSettings


class _Stall(NamedTuple):
    ended: float
    seconds: float


class Watchdog:
    """Watches the loop that runs `watching()`; everything else may be read from any thread."""

    def __init__(self, settings: HealthSettings) -> None:
        self._limit = settings.loop_stall.total_seconds()
        self._memory = settings.stall_memory.total_seconds()
        self._dead = settings.loop_dead.total_seconds()
        self._every = min(max(self._limit / 4, 0.01), 0.25)
        self._asked: float | None = None
        self._last: _Stall | None = None
        self._over = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.lag = 0.0
        """Seconds the loop took for its last answer."""

    @contextmanager
    def watching(self) -> Generator[None]:
        """Watch this event loop."""
        self.loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._watch, args=(self.loop,), name="rck-watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(timeout=1.0)
            self.loop = self._asked = None

    @property
    def stalled_for(self) -> float:
        """Seconds for which the loop has owed an answer."""
        asked = self._asked
        return 0.0 if asked is None else Clock.boot() - asked

    @property
    def is_alive(self) -> bool:
        """Whether the loop has answered recently enough not to count as dead."""
        return self.stalled_for < self._dead

    @property
    def is_blocked(self) -> bool:
        """Whether the loop is blocked right now, for longer than a runner that is ready may be."""
        return self.stalled_for >= self._limit

    @property
    def trouble(self) -> str:
        """What is wrong with the loop, or was a short while ago; empty if nothing."""
        now = self.stalled_for
        if now >= self._limit:
            return f"the event loop has been blocked for {now:.1f} s"
        last = self._last
        if last is None or (since := Clock.boot() - last.ended) >= self._memory:
            return ""
        return f"the event loop was blocked for {last.seconds:.1f} s, {since:.1f} s ago"

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._over.wait(self._every):
            if self._asked is not None:
                continue
            self._asked = Clock.boot()
            try:
                loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the loop is closed
                return

    def _answer(self) -> None:
        asked, self._asked = self._asked, None
        if asked is None:
            return
        now = Clock.boot()
        self.lag = now - asked
        if self.lag >= self._limit:
            self._last = _Stall(now, self.lag)
