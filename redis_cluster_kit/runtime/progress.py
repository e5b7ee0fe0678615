"""Whether anything is consumed while something waits: what open connections do not show.

The polls of the shards tell what waits and is in nobody's hands; counters tell what came to an end. A long
turn is no standstill, and neither is a message whose type nobody here knows.
"""

from __future__ import annotations

from collections.abc import Callable

from .counters import RuntimeCounters


class Progress:
    """The progress of one runner, by the clock that tests can move."""

    def __init__(self, counters: RuntimeCounters, now: Callable[[], float]) -> None:
        self._counters = counters
        self._now = now
        self._ended = 0
        self._moved = now()
        self._waiting: dict[str, float] = {}
        """Shards in which something waited at their last poll, and since when without a break."""

    def saw(self, shard: str, *, is_waiting: bool) -> None:
        """A poll of this shard has looked."""
        now, ended = self._now(), self._counters.ended
        if ended != self._ended:
            self._ended, self._moved = ended, now
        if is_waiting:
            self._waiting.setdefault(shard, now)
        else:
            self._waiting.pop(shard, None)

    def left(self, shard: str) -> None:
        """The shard is served no longer."""
        self._waiting.pop(shard, None)

    @property
    def stuck_for(self) -> float:
        """Seconds for which something has waited and nothing was consumed."""
        if not self._waiting or self._counters.ended != self._ended:
            return 0.0
        return max(0.0, self._now() - max(self._moved, min(self._waiting.values())))
