"""Looks after what planning has left: rows without a message, rows of dead letters, rows that are over.

Every 30 s, in bounded batches. A message that is there is not added twice, so looking harms nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.errors import KitError
from redis_cluster_kit.storage import InstantRow, SqlCrons, SqlTicks

from .cron_counters import CronCounters
from .cron_planner import PlannedCron
from .tick_messages import TickMessages

logger = logging.getLogger(__name__)

SWEEP_EVERY = 30.0
_OLD_MS = 30_000
_MOST = 500
_MOST_FORGOTTEN = 5000
_KEEP = timedelta(hours=6)
_KEEP_DEAD = timedelta(days=90)
_MS = timedelta(milliseconds=1)
_BEGINNING = (0, "")


class CronSweeper:
    """Sweeps the crons that are planned on one runner."""

    def __init__(
        self,
        store: SqlCrons,
        ticks: SqlTicks,
        messages: TickMessages,
        clock: Clock,
        attempt: timedelta,
        planned: Callable[[], Mapping[str, PlannedCron]],
        counters: Mapping[str, CronCounters],
    ) -> None:
        self._store = store
        self._ticks = ticks
        self._messages = messages
        self._clock = clock
        self._attempt = attempt.total_seconds()
        self._planned = planned
        self._counters = counters
        self._after = _BEGINNING

    async def run(self) -> None:
        """Sweep for ever."""
        while True:
            await anyio.sleep(SWEEP_EVERY)
            try:
                await self.sweep()
                await self.clean()
                await self.look_at_failures()
            except (KitError, TimeoutError) as error:
                logger.warning("crons were not swept: %s", error)

    async def sweep(self, *, older_than_ms: int = _OLD_MS) -> None:
        """Send a batch of old messages again; the next sweep goes on after it."""
        planned = dict(self._planned())
        if not planned:
            return
        before = self._clock.now_ms() - older_than_ms
        found = await self._store.pending(
            planned, self._after, before_ms=before, most=_MOST, timeout=self._attempt
        )
        for name, scheduled in found:
            await self._look_after(planned[name], scheduled)
        self._after = (found[-1][1], found[-1][0]) if len(found) == _MOST else _BEGINNING

    async def _look_after(self, one: PlannedCron, scheduled: int) -> None:
        place = self._messages.place(one.name, one.definition.shard_group, scheduled)
        word = await self._messages.send(place, again=True)
        if word == "appended":
            logger.warning("cron %s: the tick of %s had no message", one.name, place.entity_id)
        elif word in ("answered", "withdrawn"):
            found = await self._messages.mailboxes.lookup(place.shard, place.member, place.id)
            ended = {"dead": "dead", "withdrawn": "skipped"}.get(found.word)
            if ended is not None and one.owned.is_held:
                await self._ticks.end(
                    InstantRow(one.name, scheduled, one.hold),
                    ended,
                    reason=None if ended == "dead" else "withdrawn",
                    now_ms=self._clock.now_ms(),
                    timeout=self._attempt,
                )

    async def clean(self) -> None:
        """Forget rows that are over, batch by batch: there may be more than one sweep's worth."""
        planned = dict(self._planned())
        forgotten = _MOST_FORGOTTEN if planned else 0
        while forgotten == _MOST_FORGOTTEN:
            now = self._clock.now_ms()
            forgotten = await self._store.clean(
                planned,
                before_ms=now - _KEEP // _MS,
                dead_before=now - _KEEP_DEAD // _MS,
                most=_MOST_FORGOTTEN,
                timeout=self._attempt,
            )

    async def look_at_failures(self) -> None:
        """A cron that failed here may be well by now: its later ticks run on other runners too."""
        failing = [name for name, counted in self._counters.items() if counted.failing or counted.open_until]
        if failing:
            for name in await self._store.well(failing, timeout=self._attempt):
                self._counters[name].is_well()
