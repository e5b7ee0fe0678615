"""What a leader notes of its singleton: executions, the last error, a heartbeat every 30 s whatever the work.

Notes are written like state, fenced, but gathered: every 2 s at the most, at once after a failure. A
heartbeat counts only when the durable half has it.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.entity import SingletonMetadata
from redis_cluster_kit.errors import FencedError, HeartbeatFailedError, PersistenceFailedError
from redis_cluster_kit.storage import Holder, SingletonStore, StoredMetadata

from .singleton_counters import SingletonCounters

logger = logging.getLogger(__name__)

HEARTBEAT_EVERY = timedelta(seconds=30)
STALE_AFTER = 2 * HEARTBEAT_EVERY
_THROTTLE = 2.0
_RETRY_AFTER = 1.0
_LONGEST_ERROR = 2000


class LeaderNotes:
    """The metadata of one singleton during one leadership."""

    def __init__(
        self,
        store: SingletonStore,
        holder: Holder,
        clock: Clock,
        counters: SingletonCounters,
        *,
        attempt: timedelta,
        lose: Callable[[FencedError], None],
    ) -> None:
        self._store = store
        self._holder = holder
        self._clock = clock
        self._counters = counters
        self._attempt_for = attempt.total_seconds()
        self._lose = lose
        keep = None if holder.keep_ms is None else timedelta(milliseconds=holder.keep_ms)
        self._every = HEARTBEAT_EVERY if keep is None else min(HEARTBEAT_EVERY, keep / 3)
        self._noted = StoredMetadata(clock.now_ms(), None, 0, None, None, clock.now_ms())
        self._beat_ms = clock.now_ms()
        self._began = Clock.boot()
        self._is_open = False
        self._news = anyio.Event()
        self._urgent = anyio.Event()
        self._writing = anyio.Lock()
        self.on_beat: Callable[[], None] = lambda: None
        self.trouble = ""
        """Why the last heartbeat failed; empty while all is well."""
        self.failing = ""
        """What the function raised last, until an execution ends without an error."""

    async def load(self) -> None:
        """Go on where the leader before left off."""
        with anyio.fail_after(self._attempt_for):
            found = await self._store.read_note(
                self._holder.name, self._holder.shard, fresh=True, timeout=self._attempt_for
            )
        if found is not None:
            self._noted = found
        self._beat_ms = self._clock.now_ms()

    @property
    def metadata(self) -> SingletonMetadata:
        """What is known now, noted or not."""
        return metadata_of(self._noted)

    # Executions

    def begin(self) -> None:
        """An execution begins: the function, or a round of `every`."""
        self._began = Clock.boot()
        self._is_open = True

    def end(self) -> None:
        """The function or the round is done; it is an execution unless its last state write was one."""
        if self._is_open:
            self.saved()

    def saved(self) -> None:
        """A state write ends an execution; what comes after it is the next one."""
        self._counters.ran(Clock.boot() - self._began, self._clock.now())
        self._change(last_run=self._clock.now_ms(), run_count=self._noted.run_count + 1)
        self.failing = ""
        self._began = Clock.boot()
        self._is_open = False
        self._news.set()

    def failed(self, error: BaseException) -> None:
        """The function raised."""
        self._counters.failures += 1
        self._is_open = False
        text = f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]
        self._change(last_error=text, failed_at=self._clock.now_ms())
        self.failing = text
        self._news.set()
        self._urgent.set()

    def _change(self, **fields: Any) -> None:
        self._noted = dataclasses.replace(self._noted, **fields)

    # Health

    def silent_for(self) -> timedelta:
        """How long the last heartbeat is ago."""
        return timedelta(milliseconds=self._clock.now_ms() - self._beat_ms)

    def idle_for(self) -> timedelta:
        """How long the last execution is ago, over all leaders; the first one's beginning counts too."""
        last = self._noted.since if self._noted.last_run is None else self._noted.last_run
        return timedelta(milliseconds=self._clock.now_ms() - last)

    # Writing

    async def keep(self) -> None:
        """Note what is new and that the leader is alive, for ever."""
        while True:
            is_noted = await self._try()
            written = Clock.boot()
            left = (self._every - self.silent_for()).total_seconds() if is_noted else _RETRY_AFTER
            with anyio.move_on_after(max(0.05, left)):
                await self._news.wait()
            with anyio.move_on_after(max(0.0, (_THROTTLE if is_noted else 0.0) - (Clock.boot() - written))):
                await self._urgent.wait()

    def look(self) -> None:
        """The clock was moved: a heartbeat may be due."""
        if self.silent_for() >= self._every:
            self._news.set()
            self._urgent.set()

    async def _try(self) -> bool:
        try:
            await self.write()
        except HeartbeatFailedError as error:
            if not self.trouble:
                logger.warning("%s", error)
            self.trouble = str(error)
            return False
        except FencedError:
            return False
        self.trouble = ""
        return True

    async def write(self) -> None:
        """Note everything now; `HeartbeatFailedError` if the durable half does not take it."""
        async with self._writing:
            self._news, self._urgent = anyio.Event(), anyio.Event()
            now = self._clock.now_ms()
            self._change(heartbeat=now)
            noted = self._noted
            failure = await self._note(noted)
            await self._copy(noted)
            if failure is not None:
                self._counters.errors["HeartbeatFailed"] += 1
                raise HeartbeatFailedError(
                    singleton_name=self._holder.name,
                    detail=str(failure) or f"no answer within {self._attempt_for:g} s",
                    cause=failure,
                ) from failure
            self._beat_ms = now
            self.on_beat()

    async def _note(self, noted: StoredMetadata) -> Exception | None:
        try:
            with anyio.fail_after(self._attempt_for):
                await self._store.note(self._holder, noted, timeout=self._attempt_for)
        except FencedError as error:
            self._lose(error)
            raise
        except (PersistenceFailedError, TimeoutError) as error:
            return error
        return None

    async def _copy(self, noted: StoredMetadata) -> None:
        if not self._store.has_database:
            return
        try:
            with anyio.move_on_after(self._attempt_for / 2):
                await self._store.copy_note(self._holder, noted)
        except FencedError as error:
            self._lose(error)
            raise
        except PersistenceFailedError as error:
            logger.debug("singleton %s: its metadata in Redis is behind: %s", self._holder.name, error)


def metadata_of(noted: StoredMetadata) -> SingletonMetadata:
    """Return what users see of what is stored."""
    return SingletonMetadata(
        last_run=_moment(noted.last_run),
        run_count=noted.run_count,
        last_error=noted.last_error,
        failed_at=_moment(noted.failed_at),
        heartbeat=_moment(noted.heartbeat),
        since=_moment(noted.since),
    )


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
