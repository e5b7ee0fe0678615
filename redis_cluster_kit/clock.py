"""Which time it is, in two meanings that never mix. Pure: nothing here sleeps or asks a server.

`boot()` is for leases and deadlines: it never jumps and counts through a suspend. `now()` is for
schedules, cron and idleness: the data Redis' time, estimated from the answers handed to `observe()`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

# CLOCK_MONOTONIC stops while the host is suspended, a server's expiry does not.
_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_MEMORY = 300.0
_DRIFT = 0.0002


class _Sample(NamedTuple):
    taken: float
    """boot() in the middle of the call"""
    shift: float
    """server time - boot(), at that moment"""
    error: float
    """half the round trip: how far off `shift` can be"""

    def error_at(self, boot: float) -> float:
        return self.error + (boot - self.taken) * _DRIFT


class Clock:
    """The time as this process knows it. One per cluster; cheap enough to ask for every message."""

    def __init__(self) -> None:
        self._sample: _Sample | None = None
        self._offset = timedelta()
        self._offset_seconds = 0.0

    @staticmethod
    def boot() -> float:
        """Return seconds since some fixed point: for leases and local deadlines, always real."""
        return time.clock_gettime(_BOOT_CLOCK)

    def now(self) -> float:
        """Return Unix seconds by the data Redis' clock, plus the test offset."""
        return self._server_time() + self._offset_seconds

    def now_ms(self) -> int:
        """Return `now()` in whole milliseconds."""
        return int(self.now() * 1000)

    def server_ms(self) -> int:
        """Return the data Redis' own time in whole milliseconds, without a test's offset."""
        return int(self._server_time() * 1000)

    def utcnow(self) -> datetime:
        """Return `now()` as an aware UTC datetime."""
        return datetime.fromtimestamp(self.now(), UTC)

    def observe(self, server_time: float, sent: float, received: float) -> None:
        """Learn from a TIME call: the server's answer, and `boot()` read just before and after it.

        The best recent round trip wins. An old sample loses by its age: clocks drift by up to 0.2 ms a
        second. A server time outside what the samples allow means that the server's clock was set (or
        the server is another one): the newest answer is then believed at once.
        """
        if received < sent:
            raise ValueError(f"received ({received}) lies before sent ({sent})")
        middle = (sent + received) / 2
        new = _Sample(middle, server_time - middle, (received - sent) / 2)
        old = self._sample
        if old is None or _is_better(new, old, received):
            self._sample = new

    def skew(self) -> float:
        """Return local wall clock minus the server's, in seconds: 0.0 before the first answer."""
        return 0.0 if self._sample is None else time.time() - self._server_time()

    @property
    def offset(self) -> timedelta:
        """How far a test has moved this clock; zero outside testing."""
        return self._offset

    def _server_time(self) -> float:
        sample = self._sample
        return time.time() if sample is None else self.boot() + sample.shift


def _is_better(new: _Sample, old: _Sample, boot: float) -> bool:
    if boot - old.taken > _MEMORY or new.error <= old.error_at(boot):
        return True
    return abs(new.shift - old.shift) > new.error + old.error_at(boot)


class MovableClock(Clock):
    """A clock whose `now()` a test can move on; `boot()`, and so every lease, stays real."""

    def __init__(self, on_advance: Callable[[], None] | None = None) -> None:
        super().__init__()
        self._on_advance = on_advance

    def advance(self, by: timedelta) -> None:
        """Move `now()` on by `by`; time never goes backwards."""
        if by < timedelta():
            raise ValueError(f"a clock is moved forward only, got {by}")
        self._offset += by
        self._offset_seconds = self._offset.total_seconds()
        if self._on_advance is not None:
            self._on_advance()
