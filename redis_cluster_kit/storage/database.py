"""The durable plane's connection: picks the dialect, runs units of work, keeps secrets out of what it shows.

A unit of work is a small synchronous function of a SQLAlchemy `Connection`, written in this package. It may
run more than once, and no user code ever runs inside one. What is stored is none of this module's business.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Protocol, Self, TypeVar

from sqlalchemy import URL, Connection, make_url, text
from sqlalchemy.exc import ArgumentError

from redis_cluster_kit.errors import JoinRefusedError
from redis_cluster_kit.settings import DatabaseSettings

from . import migrations
from .statements import Dialect

T = TypeVar("T")
Work = Callable[[Connection], T]

_DRIVERS = "postgresql+asyncpg://… or sqlite+aiosqlite:///…"
_PREPARE_TIMEOUT = 30.0
_PING = text("SELECT 1")


class Executor(Protocol):
    """How one technology runs work; `timeout` is in seconds and covers the wait for a connection."""

    @property
    def dialect(self) -> Dialect: ...
    async def close(self) -> None: ...
    async def statement(self, work: Work[T], timeout: float) -> T: ...
    async def transaction(self, work: Work[T], timeout: float) -> T: ...
    async def read(self, work: Work[T], timeout: float) -> T: ...


class Database:
    """`async with Database(url, settings, ttl=…)`; failures are `PersistenceFailedError(store="database")`.

    `execution` of a failure: NOT_EXECUTED if nothing can have been committed, REFUSED if the server said no,
    UNKNOWN if the answer to a write is missing. A caller cancelled during a write knows as little.
    """

    def __init__(self, url: str, settings: DatabaseSettings, *, ttl: timedelta) -> None:
        self._url = _checked(url)
        self._settings = settings
        self._ttl = ttl
        self._executor: Executor | None = None

    @property
    def dialect(self) -> Dialect:
        """`postgresql` or `sqlite`."""
        return "sqlite" if self._url.get_backend_name() == "sqlite" else "postgresql"

    @property
    def is_sqlite(self) -> bool:
        """Whether this is an SQLite file."""
        return self.dialect == "sqlite"

    @property
    def host_bound(self) -> bool:
        """Whether only processes of one host can share it: an SQLite file's locks do not reach further."""
        return self.is_sqlite

    def __repr__(self) -> str:
        place = f"{self._url.host or ''}/{self._url.database or ''}" if not self.is_sqlite else "file"
        return f"Database({self.dialect}, {place})"

    async def __aenter__(self) -> Self:
        if self._executor is not None:
            raise RuntimeError("this Database is open already")
        self._executor = self._make_executor()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        executor, self._executor = self._open(), None
        await executor.close()

    async def statement(self, work: Work[T], *, timeout: float) -> T:
        """Run `work`, which executes exactly one writing statement."""
        return await self._open().statement(work, timeout)

    async def transaction(self, work: Work[T], *, timeout: float) -> T:
        """Run `work`, whose statements take effect together or not at all."""
        return await self._open().transaction(work, timeout)

    async def read(self, work: Work[T], *, timeout: float) -> T:
        """Run `work`, which only reads."""
        return await self._open().read(work, timeout)

    async def prepare(self, create_tables: bool, *, timeout: float = _PREPARE_TIMEOUT) -> None:
        """Bring the tables up to this release, or only check them; `JoinRefusedError` if they do not fit."""
        if create_tables:
            await migrations.bring_up(self, timeout=timeout)
        else:
            await migrations.check(self, timeout=timeout)

    async def ping(self, *, timeout: float) -> None:
        """See whether the database answers; `PersistenceFailedError` if it does not."""
        await self.read(lambda connection: connection.execute(_PING).scalar(), timeout=timeout)

    def _open(self) -> Executor:
        if self._executor is None:
            raise RuntimeError("this Database is not open: use `async with`")
        return self._executor

    def _make_executor(self) -> Executor:
        if self.is_sqlite:
            from .sqlite import SqliteExecutor

            return SqliteExecutor(self._url, pool_size=self._settings.pool_size)
        try:
            from .postgres import PostgresExecutor
        except ModuleNotFoundError as error:
            raise JoinRefusedError(
                setting="database",
                expected="the asyncpg package for postgresql+asyncpg://",
                found=f"no module {error.name}",
                hint="install redis-cluster-kit[postgres]",
            ) from error
        return PostgresExecutor(
            self._url,
            pool_size=self._settings.pool_size,
            ttl=self._ttl,
            statement_timeout=self._settings.statement_timeout or self._ttl / 2,
        )


def _checked(url: str) -> URL:
    """Parse the URL; what is wrong with it is told without showing it, for it may hold a password."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        parsed = None
    if parsed is None:
        raise JoinRefusedError(
            setting="database",
            expected=_DRIVERS,
            found="text that is not a database URL",
            hint="check the URL",
        )
    if parsed.drivername not in ("postgresql+asyncpg", "sqlite+aiosqlite"):
        raise JoinRefusedError(
            setting="database",
            expected=_DRIVERS,
            found=f"{parsed.drivername}://…",
            hint="the kit needs one of these asynchronous drivers",
        )
    if parsed.drivername.startswith("sqlite") and _is_in_memory(parsed):
        raise JoinRefusedError(
            setting="database",
            expected="sqlite+aiosqlite:///file.db",
            found="an SQLite database in memory",
            hint="other runners, and this one after a restart, need the same file",
        )
    return parsed


def _is_in_memory(url: URL) -> bool:
    name = url.database or ""
    return name in ("", ":memory:") or name.startswith("file::memory:") or url.query.get("mode") == "memory"
