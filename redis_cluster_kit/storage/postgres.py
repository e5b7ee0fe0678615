"""Runs work on PostgreSQL through asyncpg. One statement is auto-committed: a process stopped at any point
leaves no transaction open; several statements share a transaction that the server ends if we fall silent.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import asyncpg
from sqlalchemy import URL, Connection, event, text
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.exc import DisconnectionError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from .deadline import Deadline
from .failures import Attempt, Progress, postgres_failure, timed_out
from .statements import Dialect

T = TypeVar("T")

_DRIVER_ERRORS = (SQLAlchemyError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError)

# The rest is for the answer's way back: a definite "no" of the server is worth more than a timeout of ours.
_SERVERS_SHARE = 0.9

# Without synchronous_commit a crashed server could forget a grant it has answered, and fences would go back.
_PREPARE_SESSION = text("""
SELECT set_config('statement_timeout', :statement_timeout, false),
    set_config('lock_timeout', :lock_timeout, false),
    CASE WHEN current_setting('synchronous_commit') = 'off'
        THEN set_config('synchronous_commit', 'on', false) END
""")


class HardClosing(PGDialect_asyncpg):
    """Drops a session whose caller was cancelled or timed out at once.

    SQLAlchemy waits up to 2 s for a polite end, longer than the caller has, and logs an error if it may not.
    """

    supports_statement_cache = True

    def do_terminate(self, dbapi_connection: Any) -> None:
        """Close the socket; the server ends the session by itself."""
        dbapi_connection.driver_connection.terminate()


_DRIVER = "postgresql+rck_asyncpg"
registry.register("postgresql.rck_asyncpg", __name__, HardClosing.__name__)


class PostgresExecutor:
    """One pool of sessions whose own timeouts all lie below the lease TTL."""

    dialect: Dialect = "postgresql"

    def __init__(self, url: URL, *, pool_size: int, ttl: timedelta, statement_timeout: timedelta) -> None:
        self._statement_timeout = statement_timeout.total_seconds()
        self._lock_timeout = min(ttl / 3, statement_timeout).total_seconds()
        self._engine = create_async_engine(
            url.set(drivername=_DRIVER),
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=ttl.total_seconds(),
            hide_parameters=True,
            connect_args={
                "timeout": ttl.total_seconds(),
                "server_settings": self._session_settings(ttl),
            },
        )
        event.listen(self._engine.sync_engine, "checkout", _refuse_closed)
        self._auto_committing = self._engine.execution_options(isolation_level="AUTOCOMMIT")

    async def close(self) -> None:
        """Close every connection, also while being cancelled."""
        with anyio.CancelScope(shield=True):
            await self._engine.dispose()

    async def statement(self, work: Callable[[Connection], T], timeout: float) -> T:
        """Run one writing statement with its implicit commit."""
        return await self._run(self._auto_committing, Progress.COMMITTING, work, timeout)

    async def transaction(self, work: Callable[[Connection], T], timeout: float) -> T:
        """Run several statements, all or none."""
        return await self._run(self._engine, Progress.IN_TRANSACTION, work, timeout)

    async def read(self, work: Callable[[Connection], T], timeout: float) -> T:
        """Run one reading statement; with several, each sees its own snapshot."""
        return await self._run(self._auto_committing, Progress.IN_TRANSACTION, work, timeout)

    async def _run(
        self, engine: AsyncEngine, begun: Progress, work: Callable[[Connection], T], timeout: float
    ) -> T:
        deadline = Deadline(timeout)
        attempt = Attempt()
        try:
            with anyio.fail_after(timeout):
                try:
                    async with engine.connect() as connection:
                        await self._limit(connection, deadline)
                        attempt.progress = begun
                        result = await connection.run_sync(work)
                        if engine is self._engine:
                            attempt.progress = Progress.COMMITTING
                            await connection.commit()
                        return result
                except _DRIVER_ERRORS:
                    # A driver that was cancelled may raise an error of its own in the cancellation's place.
                    await anyio.lowlevel.checkpoint_if_cancelled()
                    raise
        except TimeoutError as error:
            raise timed_out(attempt, timeout, error) from error
        except _DRIVER_ERRORS as error:
            raise postgres_failure(error, attempt) from error

    async def _limit(self, connection: AsyncConnection, deadline: Deadline) -> None:
        """Tell the server when we stop waiting: it then neither works nor queues for a caller who left.

        A round trip of its own, because a statement cannot set its own timeout.
        """
        left = deadline.left * _SERVERS_SHARE
        limits = {
            "statement_timeout": _milliseconds(min(left, self._statement_timeout)),
            "lock_timeout": _milliseconds(min(left, self._lock_timeout)),
        }
        await connection.execute(_PREPARE_SESSION, limits)

    def _session_settings(self, ttl: timedelta) -> dict[str, str]:
        """A stopped owner's open transaction, or its place in a lock's queue, ends before its lease does."""
        return {
            "application_name": "redis_cluster_kit",
            # A write that waited for a grant must look at the register's row again, not at its snapshot.
            "default_transaction_isolation": "read committed",
            "idle_in_transaction_session_timeout": _milliseconds((ttl / 3).total_seconds()),
            "lock_timeout": _milliseconds(self._lock_timeout),
            "statement_timeout": _milliseconds(self._statement_timeout),
        }


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))  # 0 would mean: no limit


def _refuse_closed(connection: Any, _record: object, _proxy: object) -> None:
    """Replace a session the server has closed meanwhile: known without a round trip, so no pre-ping."""
    if connection.driver_connection.is_closed():
        raise DisconnectionError("the server closed this session")
