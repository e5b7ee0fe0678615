"""Runs work on an SQLite file: an attempt is one synchronous call in one thread hop, nothing awaited inside.

The URL names aiosqlite, but its one-hop-per-statement would keep the file locked across the event loop,
so SQLAlchemy's synchronous side runs in our own hop. A file binds the cluster to one host.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any, TypeVar

import anyio
from anyio import CapacityLimiter, from_thread, to_thread
from sqlalchemy import URL, Connection, create_engine, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import QueuePool

from .deadline import Deadline
from .failures import Attempt, Progress, is_busy, locked, sqlite_failure, timed_out
from .statements import Dialect

T = TypeVar("T")

# SQLite's own busy handler backs off to 100 ms: two busy writers then starved every grant.
_RETRY_AFTER = (0.0005, 0.002)
_PAUSE_AFTER_COMMIT = 0.001


class SqliteExecutor:
    """All connections to one file. Writers of this process take turns; other processes get in between."""

    dialect: Dialect = "sqlite"

    def __init__(self, url: URL, *, pool_size: int) -> None:
        self._engine = create_engine(
            url.set(drivername="sqlite+pysqlite"),
            poolclass=QueuePool,
            pool_size=pool_size + 1,
            max_overflow=0,
            hide_parameters=True,
            connect_args={"timeout": 0, "check_same_thread": False},
        )
        event.listen(self._engine, "connect", _configure)
        self._readers = CapacityLimiter(pool_size)
        self._writer = CapacityLimiter(1)
        self._next_write = 0.0

    async def close(self) -> None:
        """Close every connection."""
        await to_thread.run_sync(self._engine.dispose)

    async def statement(self, work: Callable[[Connection], T], timeout: float) -> T:
        """Run one writing statement; on SQLite it needs a transaction too."""
        return await self._run(work, timeout, writing=True)

    async def transaction(self, work: Callable[[Connection], T], timeout: float) -> T:
        """Run several statements, all or none."""
        return await self._run(work, timeout, writing=True)

    async def read(self, work: Callable[[Connection], T], timeout: float) -> T:
        """Run reading statements on one snapshot; writers do not hold it up (WAL)."""
        return await self._run(work, timeout, writing=False)

    async def _run(self, work: Callable[[Connection], T], timeout: float, *, writing: bool) -> T:
        deadline = Deadline(timeout)
        attempt = Attempt()
        try:
            # Waiting for a turn ends with the timeout. The hop itself ends by its own deadline, so that no
            # thread is left behind holding the file.
            with anyio.fail_after(timeout):
                return await to_thread.run_sync(
                    self._until,
                    lambda: self._attempt(work, attempt, writing=writing),
                    attempt,
                    deadline,
                    limiter=self._writer if writing else self._readers,
                )
        except TimeoutError as error:
            raise timed_out(attempt, timeout, error) from error
        except (SQLAlchemyError, sqlite3.Error) as error:
            failure = locked(timeout, error) if is_busy(error) else sqlite_failure(error, attempt)
            raise failure from error
        finally:
            # anyio waits for the hop when a scope is cancelled; asyncio's `task.cancel()` leaves it running.
            attempt.is_abandoned = True

    def _until(self, once: Callable[[], T], attempt: Attempt, deadline: Deadline) -> T:
        """Repeat an attempt that found the file locked, until the deadline or the caller is cancelled."""
        while True:
            try:
                return once()
            except (SQLAlchemyError, sqlite3.Error) as error:
                if not is_busy(error) or deadline.is_over or attempt.is_abandoned:
                    raise
            from_thread.check_cancelled()
            time.sleep(random.uniform(*_RETRY_AFTER))

    def _attempt(self, work: Callable[[Connection], T], attempt: Attempt, *, writing: bool) -> T:
        attempt.progress = Progress.CONNECTING
        if writing:
            time.sleep(max(0.0, self._next_write - time.monotonic()))
        with self._engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")
            attempt.progress = Progress.IN_TRANSACTION
            result = work(connection)
            if attempt.is_abandoned:
                raise CancelledError
            if writing:
                attempt.progress = Progress.COMMITTING
            connection.commit()
        if writing:
            self._next_write = time.monotonic() + _PAUSE_AFTER_COMMIT
        return result


def _configure(connection: Any, _record: object) -> None:
    """Leave BEGIN to us; a commit is on the disk before it is answered, otherwise fences could go back."""
    try:
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        connection.close()
        raise
