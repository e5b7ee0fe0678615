"""Where a consumer notes when a message has run, and the producer reads it: a slot each, in a shared file.

The same for one consumer process, a pool of them, or threads. Standard library only, as in all that runs in a
peer's environment.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any

URL = os.environ.get("PEERS_URL", "")
VARIANT = os.environ.get("PEERS_VARIANT", "")
PAD = "x" * 48

_open: dict[str, mmap.mmap] = {}


def folder() -> Path:
    """Return where the slots of this run are."""
    return Path(os.environ["PEERS_FOLDER"])


def arrive(message: dict[str, Any]) -> None:
    """Note that this message has run; the first time counts. This is all that a peer's handler does."""
    now = time.monotonic_ns()
    slots = _open.get(message["run"])
    if slots is None:
        with (folder() / message["run"]).open("r+b") as file:
            slots = _open[message["run"]] = mmap.mmap(file.fileno(), 0)
    place = 8 * message["i"]
    if slots[place : place + 8] == bytes(8):
        struct.pack_into("<q", slots, place, now)


class Arrivals:
    """The slots of one run, seen by the producer."""

    def __init__(self, run: str, number: int) -> None:
        self._run = f"{run}-{os.getpid()}"
        path = folder() / self._run
        path.write_bytes(bytes(8 * number))
        with path.open("r+b") as file:
            self._slots = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
        self._arrived = 0

    def message(self, number: int) -> dict[str, Any]:
        """Return a message of this run: about 100 bytes as JSON."""
        return {"run": self._run, "i": number, "t": time.monotonic_ns(), "pad": PAD}

    def missing(self) -> int:
        """Return how many have not run, or 0: it stops looking at the first."""
        while self._arrived < len(self._slots) and self._slots[self._arrived]:
            self._arrived += 1
        return len(self._slots) - self._arrived

    def times(self) -> list[int]:
        """Return when each ran, in nanoseconds of the monotonic clock; 0: it has not."""
        return self._slots.tolist()
