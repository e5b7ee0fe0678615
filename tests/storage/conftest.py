"""Shared by the storage tests: an open database, a crew of other processes, and locks held on purpose."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import asyncpg
import pytest
from sqlalchemy import event, make_url

from redis_cluster_kit.settings import DatabaseSettings
from redis_cluster_kit.storage import Database
from redis_cluster_kit.testing import ChildProcess, until

TTL = timedelta(seconds=5)
CREW = 4
CHILDREN = Path(__file__).with_name("children.py")


@pytest.fixture
async def empty_database(database_url: str) -> AsyncIterator[Database]:
    """An open database of each kind, without tables."""
    async with Database(database_url, DatabaseSettings(), ttl=TTL) as database:
        yield database


@pytest.fixture
async def database(empty_database: Database) -> Database:
    """An open database of each kind, with this release's tables."""
    await empty_database.prepare(True)
    return empty_database


@pytest.fixture
async def postgres_database(postgres_url: str) -> AsyncIterator[Database]:
    async with Database(postgres_url, DatabaseSettings(), ttl=TTL) as database:
        await database.prepare(True)
        yield database


@pytest.fixture
async def sqlite_database(sqlite_url: str) -> AsyncIterator[Database]:
    async with Database(sqlite_url, DatabaseSettings(), ttl=TTL) as database:
        await database.prepare(True)
        yield database


# --- Other processes ---


@dataclass(frozen=True)
class Crew:
    """Processes that act at the same moment; they live as long as the session."""

    members: Sequence[ChildProcess]

    async def act(self, url: str, calls: Sequence[dict[str, Any]], *, ttl: float = 5.0) -> list[Any]:
        """Give each member one call, let them go together, return what each of them saw."""
        acting = self.members[: len(calls)]
        assert len(acting) == len(calls)
        await self.begin(url, calls, ttl=ttl)
        done = await asyncio.gather(*(member.wait_for("done", timeout=30) for member in acting))
        failed = [event["error"] for event in done if "error" in event.fields]
        assert not failed, failed
        return [event["result"] for event in done]

    async def begin(self, url: str, calls: Sequence[dict[str, Any]], *, ttl: float = 5.0) -> None:
        """Let them go and do not wait; their `done` events are the caller's to wait for."""
        acting = list(zip(self.members, calls, strict=False))
        for member, call in acting:
            await member.send({"url": url, "ttl": ttl, **call})
        await asyncio.gather(*(member.wait_for("ready", timeout=30) for member, _ in acting))
        for member, _ in acting:
            await member.send("go")


@pytest.fixture(scope="session")
async def crew() -> AsyncIterator[Crew]:
    """Four other runners, started once: an interpreter costs more than everything they do."""
    async with AsyncExitStack() as stack:
        members = [ChildProcess(f"{CHILDREN}:serve", name=f"crew-{number}") for number in range(CREW)]
        await asyncio.gather(*(stack.enter_async_context(member) for member in members))
        yield Crew(members)


# --- Locks held open ---


class Held(Protocol):
    """A transaction of somebody else that stays open until told otherwise."""

    async def execute(self, statement: str) -> list[tuple[Any, ...]]: ...
    async def commit(self) -> None: ...
    async def is_waited_for(self) -> bool: ...


class HeldPostgres:
    def __init__(self, connection: Any, monitor: Any) -> None:
        self._connection = connection
        self._monitor = monitor
        self.pid: int = connection.get_server_pid()

    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self._connection.fetch(statement)]

    async def commit(self) -> None:
        await self._connection.execute("COMMIT")

    async def is_waited_for(self) -> bool:
        """The server itself says who blocks whom."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))"
        return bool(await self._monitor.fetchval(query, self.pid))


class HeldSqlite:
    """SQLite does not tell who waits, but every attempt begins with a BEGIN IMMEDIATE that can be counted."""

    def __init__(self, connection: sqlite3.Connection, attempts: Callable[[], int]) -> None:
        self._connection = connection
        self._attempts = attempts

    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement).fetchall()

    async def commit(self) -> None:
        self._connection.execute("COMMIT")

    async def is_waited_for(self) -> bool:
        return self._attempts() >= 3


async def connect_raw(url: str) -> Any:
    """A session of asyncpg's own, past everything the kit does."""
    parsed = make_url(url)
    host = parsed.host or parsed.query["host"]
    return await asyncpg.connect(
        host=host, port=parsed.port or 5432, user="postgres", database=parsed.database, ssl=False, timeout=5
    )


@asynccontextmanager
async def _held_postgres(url: str) -> AsyncGenerator[HeldPostgres]:
    connection, monitor = await connect_raw(url), await connect_raw(url)
    try:
        await connection.execute("BEGIN")
        yield HeldPostgres(connection, monitor)
    finally:
        connection.terminate()
        await monitor.close()


@asynccontextmanager
async def _held_sqlite(url: str, database: Database) -> AsyncGenerator[HeldSqlite]:
    count = 0

    def attempt(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        nonlocal count
        count += statement == "BEGIN IMMEDIATE"

    path = make_url(url).database
    assert path is not None
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    engine = database._executor._engine  # type: ignore[union-attr]
    event.listen(engine, "before_cursor_execute", attempt)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield HeldSqlite(connection, lambda: count)
    finally:
        event.remove(engine, "before_cursor_execute", attempt)
        connection.close()


@pytest.fixture
def hold(database_url: str) -> Callable[[Database], AbstractAsyncContextManager[Held]]:
    """Begin somebody else's transaction in the same database and keep it open inside the block."""

    def begin(database: Database) -> AbstractAsyncContextManager[Held]:
        return _held_sqlite(database_url, database) if database.is_sqlite else _held_postgres(database_url)

    return begin


@pytest.fixture
async def held(
    database: Database, hold: Callable[[Database], AbstractAsyncContextManager[Held]]
) -> AsyncIterator[Held]:
    """Somebody else's open transaction in the same database."""
    async with hold(database) as holder:
        yield holder


@pytest.fixture
async def held_postgres(postgres_database: Database, postgres_url: str) -> AsyncIterator[HeldPostgres]:
    """Somebody else's open transaction in PostgreSQL, where rows are locked one by one."""
    async with _held_postgres(postgres_url) as holder:
        yield holder


@pytest.fixture
def waited_for() -> Callable[[Held], Awaitable[None]]:
    """Wait until somebody is stuck behind a held transaction."""

    async def wait(held: Held) -> None:
        await until(held.is_waited_for, what="somebody waiting for the open transaction")

    return wait


# --- Past the kit ---


Raw: TypeAlias = Callable[[str], Awaitable[list[tuple[Any, ...]]]]


def _past_the_kit(url: str) -> Raw:
    async def run(statement: str) -> list[tuple[Any, ...]]:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            assert parsed.database is not None
            connection = sqlite3.connect(parsed.database, timeout=5, isolation_level=None)
            try:
                return connection.execute(statement).fetchall()
            finally:
                connection.close()
        session = await connect_raw(url)
        try:
            return [tuple(row) for row in await session.fetch(statement)]
        finally:
            await session.close()

    return run


@pytest.fixture
def raw(database_url: str) -> Raw:
    """Run one statement as a person at the database's own prompt would."""
    return _past_the_kit(database_url)


@pytest.fixture
def raw_postgres(postgres_url: str) -> Raw:
    """The same, on PostgreSQL only."""
    return _past_the_kit(postgres_url)
