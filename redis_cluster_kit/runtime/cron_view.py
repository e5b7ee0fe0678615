"""`cluster.crons`: crons as any pod sees and steers them. Who plans them finds that in the database."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.entity import CronExpression, Schedule
from redis_cluster_kit.errors import PersistenceFailedError
from redis_cluster_kit.storage import SqlCronView, StoredCron

from .tick_messages import TickMessages, moment

_NEXT = 3
_REGISTERED_WITHIN = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CronInfo:
    """A cron as it stands in the database; instants are aware datetimes in UTC."""

    name: str
    expression: str
    timezone: str
    shard_group: str
    paused: bool
    last: datetime
    """The last instant that was planned or has passed; before the first, when it was registered."""
    next: tuple[datetime, ...]
    """The next three; empty if this pod cannot read its expression."""
    pending: int
    """Ticks that wait, run, or are tried again."""
    failures: int
    """Attempts that failed since a tick ended well."""
    breaker: str | None
    """`closed`, `open`, or `half-open`: one instant is tried; None: it has none."""
    run_count: int
    """Ticks that ended well."""
    last_run: datetime | None
    """When one did last."""
    last_error: str | None
    """What the last failure raised. It stays: `last_run` after `failed_at` means that it is well again."""
    failed_at: datetime | None


class Crons:
    """The crons of a cluster."""

    def __init__(
        self,
        store: SqlCronView,
        messages: TickMessages,
        clock: Clock,
        timeout: float,
        registered: Collection[str] = (),
    ) -> None:
        self._store = store
        self._registered = registered
        self._messages = messages
        self._clock = clock
        self._timeout = timeout

    async def list(self) -> Sequence[CronInfo]:
        """Return every cron that was ever registered, by name."""
        now = self._clock.now_ms()
        return [_info(stored, now) for stored in await self._stored()]

    async def pause(self, name: str) -> None:
        """Let its instants pass until it is resumed; ticks that are there go on. LookupError if unknown."""
        await self._find(name)
        await self._store.pause(name, now_ms=self._clock.now_ms(), timeout=self._timeout)

    async def resume(self, name: str) -> None:
        """Plan it again, from now on: what has passed is not made up for. LookupError if unknown."""
        await self._find(name)
        await self._store.resume(name, now_ms=self._clock.now_ms(), timeout=self._timeout)

    async def trigger(self, name: str) -> datetime:
        """Run it now, whatever its schedule, breaker or pause; return the instant its tick stands for.

        LookupError if there is no such cron; RuntimeError if it may not overlap and a tick is not done.
        """
        cron = await self._find(name)
        scheduled = self._clock.now_ms()
        while True:
            scheduled += scheduled % 1000 == 0  # whole seconds belong to the schedule
            place = self._messages.place(name, cron.shard_group, scheduled)
            if await self._store.trigger(name, scheduled, place.message_id, timeout=self._timeout):
                break
            if cron.overlap == "skip" and (await self._find(name)).pending:
                raise RuntimeError(f"cron {name!r} may not overlap, and one of its ticks is not done")
            scheduled += 1
        await self._messages.send(place)
        return moment(scheduled)

    async def _stored(self) -> Sequence[StoredCron]:
        try:
            with anyio.fail_after(2 * self._timeout):
                return await self._store.list(timeout=self._timeout)
        except TimeoutError as error:
            raise PersistenceFailedError(store="database", detail="no answer in time") from error

    async def _find(self, name: str) -> StoredCron:
        """Return a cron; one that is registered here is in the database as soon as its shard has an owner."""
        deadline = Clock.boot() + _REGISTERED_WITHIN
        while True:
            stored = {one.name: one for one in await self._stored()}
            if name in stored:
                return stored[name]
            if name not in self._registered or Clock.boot() > deadline:
                known = ", ".join(stored) or "none"
                raise LookupError(f"there is no cron {name!r}; known: {known}")
            await anyio.sleep(0.05)


def _info(stored: StoredCron, now: int) -> CronInfo:
    return CronInfo(
        name=stored.name,
        expression=stored.expression,
        timezone=stored.timezone,
        shard_group=stored.shard_group,
        paused=stored.paused,
        last=moment(stored.last_ms),
        next=_upcoming(stored, moment(max(now, stored.last_ms))),
        pending=stored.pending,
        failures=stored.failures,
        breaker=_breaker(stored, now),
        run_count=stored.run_count,
        last_run=None if stored.last_run is None else moment(stored.last_run),
        last_error=stored.last_error,
        failed_at=None if stored.failed_at is None else moment(stored.failed_at),
    )


def _upcoming(stored: StoredCron, after: datetime) -> tuple[datetime, ...]:
    try:
        schedule = Schedule(CronExpression.parse(stored.expression), ZoneInfo(stored.timezone))
    except (ValueError, ZoneInfoNotFoundError):
        return ()  # another release wrote it, or this host has older time zone data
    return tuple(schedule.upcoming(after, _NEXT))


def _breaker(stored: StoredCron, now: int) -> str | None:
    if not stored.breaker_limit:
        return None
    if stored.failures < stored.breaker_limit:
        return "closed"
    return "open" if now < stored.open_until else "half-open"
