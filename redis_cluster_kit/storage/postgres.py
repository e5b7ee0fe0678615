"""Runs work on PostgreSQL through asyncpg. One statement is auto-committed: a process stopped at any point
leaves no transaction open; several statements share a transaction that the server ends if we fall silent.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import anyio
import asyncpg
from sqlalchemy import URL, Connection, event
from sqlalchemy.exc import DisconnectionError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from .failures import Attempt, Progress, postgres_failure, timed_out
from .statements import Dialect

T = TypeVar("T")

_DRIVER_ERRORS = (SQLAlchemyError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError)


class PostgresExecutor:
    """One pool of sessions whose own timeouts all lie below the lease TTL."""

    dialect: Dialect = "postgresql"

    def __init__(self, url: URL, *, pool_size: int, ttl: timedelta, statement_timeout: timedelta) -> None:
        self._engine = create_async_engine(
            url,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=ttl.total_seconds(),
            hide_parameters=True,
            connect_args={
                "timeout": ttl.total_seconds(),
                "server_settings": _session_settings(ttl, statement_timeout),
            },
        )
        event.listen(self._engine.sync_engine, "checkout", _refuse_closed)
        self._auto_committing = self._engine.execution_options(isolation_level="AUTOCOMMIT")

    async def close(self) -> None:
        """Close every connection, also while being cancelled."""
        with anyio.CancelScope(shield=True):
            await self._engine.dispose()

    async def statement(self, work: Callable[[Connection], T], timeout: float) -> T:
        """Run one writing statement and its implicit commit: a single round trip."""
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
        attempt = Attempt()
        try:
            with anyio.fail_after(timeout):
                async with engine.connect() as connection:
                    attempt.progress = begun
                    result = await connection.run_sync(work)
                    if engine is self._engine:
                        attempt.progress = Progress.COMMITTING
                        await connection.commit()
                    return result
        except TimeoutError as error:
            raise timed_out(attempt, timeout, error) from error
        except _DRIVER_ERRORS as error:
            raise postgres_failure(error, attempt) from error


def _session_settings(ttl: timedelta, statement_timeout: timedelta) -> dict[str, str]:
    """A stopped owner's open transaction, or its place in a queue for a lock, ends before its lease does."""

    def milliseconds(limit: timedelta) -> str:
        return str(max(1, round(limit / timedelta(milliseconds=1))))

    return {
        "application_name": "redis_cluster_kit",
        "idle_in_transaction_session_timeout": milliseconds(ttl / 3),
        "lock_timeout": milliseconds(min(ttl / 3, statement_timeout)),
        "statement_timeout": milliseconds(statement_timeout),
    }


def _refuse_closed(connection: Any, _record: object, _proxy: object) -> None:
    """Replace a session the server has closed meanwhile: known without a round trip, so no pre-ping."""
    if connection.driver_connection.is_closed():
        raise DisconnectionError("the server closed this session")
