"""How much of a caller's timeout is left, for operations of several statements. It only counts."""

from __future__ import annotations

import time


class Deadline:
    """`timeout` seconds from now."""

    __slots__ = ("_end", "timeout")

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._end = time.monotonic() + timeout

    @property
    def left(self) -> float:
        """Seconds that are left, never below 0."""
        return max(0.0, self._end - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self.left == 0.0
