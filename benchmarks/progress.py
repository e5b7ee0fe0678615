"""The line below the output of a benchmark: what runs, since when, and roughly how long it still takes.

On a terminal it is redrawn every second; elsewhere it is printed when a benchmark begins, and every 30 s.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TextIO

_QUIET_EVERY = 30.0


def spoken(seconds: float) -> str:
    """Return a duration as one says it: `48 s`, `2 min 05 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class Progress:
    """Shows lines, and the present state below them."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._is_terminal = self._stream.isatty()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._ticking = threading.Thread(target=self._tick, name="progress", daemon=True)
        self._title = ""
        self._began = 0.0
        self._left: float | None = None
        self._unknown = 0

    def __enter__(self) -> Self:
        self._ticking.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._ticking.join()
        with self._lock:
            self._clear()

    def begin(self, title: str, left: Sequence[float | None]) -> None:
        """Name what begins; `left` is how long it and each that follows took last time, None if never run."""
        with self._lock:
            self._title = title
            self._began = time.monotonic()
            self._left = sum(known for known in left if known is not None)
            self._unknown = sum(known is None for known in left)
            self._clear()
            self._stream.write(f"{self.state()}\n")
            self._stream.flush()

    def show(self, line: str) -> None:
        """Print a line above the state."""
        with self._lock:
            self._clear()
            self._stream.write(f"{line}\n")
            self._draw()

    def state(self) -> str:
        """Say what runs, since when, and what is left."""
        if not self._title:
            return ""
        took = time.monotonic() - self._began
        parts = [self._title, f"for {spoken(took)}"]
        if self._left:
            parts.append(f"about {spoken(max(0.0, self._left - took))} left")
        if self._unknown:
            parts.append(f"{self._unknown} of unknown length")
        return ", ".join(parts)

    def _tick(self) -> None:
        while not self._over.wait(1.0 if self._is_terminal else _QUIET_EVERY):
            with self._lock:
                if self._is_terminal:
                    self._clear()
                    self._draw()
                else:
                    self._stream.write(f"… {self.state()}\n")
                    self._stream.flush()

    def _clear(self) -> None:
        if self._is_terminal:
            self._stream.write("\r\x1b[2K")

    def _draw(self) -> None:
        if self._is_terminal:
            self._stream.write(self.state())
        self._stream.flush()
