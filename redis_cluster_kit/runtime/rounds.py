"""The rounds of a singleton that loops in `every`: each is an execution of its own, and a span of its own.

An iterator and no generator: a loop that is left in the middle of a round leaves nothing that only the
garbage collector would end, in a context that is none of ours.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING

from redis_cluster_kit.telemetry import TRACING, OpenSpan

if TYPE_CHECKING:
    from .leader import Leader
    from .leader_notes import LeaderNotes
    from .singletons import SingletonHost


class Rounds(AsyncIterator[datetime]):
    """Yields the time at once and then every `interval` seconds; missed rounds are skipped."""

    def __init__(self, leader: Leader, host: SingletonHost, notes: LeaderNotes, interval: float) -> None:
        self._leader = leader
        self._host = host
        self._notes = notes
        self._interval = interval
        self._due: float | None = None
        self._span: OpenSpan | None = None

    async def __anext__(self) -> datetime:
        clock = self._host.clock
        if self._due is None:
            self._due = clock.now()
        else:
            self._end()
            await self._leader.end_round()
            missed = max(0.0, clock.now() - self._due) // self._interval
            self._due += (missed + 1) * self._interval
            await self._host.sleep_until(self._due)
        self._notes.begin()
        self._span = TRACING.begin(
            f"singleton.{self._leader.name}.round",
            shard=self._leader.shard,
            runner_id=self._host.runner_id,
        )
        return clock.utcnow()

    def _end(self) -> None:
        span, self._span = self._span, None
        if span is not None:
            span.end()

    def left(self, error: BaseException | None) -> None:
        """The function has ended, perhaps in the middle of a round."""
        span, self._span = self._span, None
        if span is not None:
            span.drop(error)
