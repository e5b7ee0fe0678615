"""The proxy before a real PostgreSQL, whose commits it can leave in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from redis_cluster_kit.embedded import PostgresServer
from redis_cluster_kit.testing import Proxy, command, statement, until


@pytest.fixture
async def proxy(postgres: PostgresServer) -> AsyncIterator[Proxy]:
    async with Proxy.to_unix(
        str(postgres.folder / f".s.PGSQL.{postgres.port}"), speaks="postgres"
    ) as running:
        yield running


async def _connect(proxy: Proxy, database: str | None) -> Any:
    return await asyncpg.connect(
        host=proxy.host, port=proxy.port, user="postgres", database=database, ssl=False, timeout=5
    )


async def test_a_commit_whose_answer_is_cut_off_has_happened(
    proxy: Proxy, postgres: PostgresServer, postgres_url: str
) -> None:
    database = make_url(postgres_url).database
    assert database is not None
    connection = await _connect(proxy, database)
    await connection.execute("CREATE TABLE t (x int)")
    await connection.execute("BEGIN; INSERT INTO t VALUES (1)")
    with proxy.cut("to_client") as cut:
        with pytest.raises(TimeoutError):
            await connection.execute("COMMIT", timeout=0.1)
        cut.assert_fired()
    connection.terminate()
    assert postgres.execute("SELECT count(*) FROM t", database=database) == "1"
    await until(lambda: proxy.connections == 0)


async def test_a_statement_that_is_cut_off_on_its_way_has_not(
    proxy: Proxy, postgres: PostgresServer, postgres_url: str
) -> None:
    database = make_url(postgres_url).database
    assert database is not None
    connection = await _connect(proxy, database)
    await connection.execute("CREATE TABLE t (x int)")
    async with asyncio.TaskGroup() as group:
        with proxy.cut("to_server") as cut:
            call = group.create_task(_lost(connection.execute("INSERT INTO t VALUES (1)")))
            await until(lambda: cut.count > 0)
    assert call.result()
    proxy.assert_fired()
    assert postgres.execute("SELECT count(*) FROM t", database=database) == "0"


async def _refused(call: Awaitable[object]) -> None:
    with pytest.raises(DBAPIError):
        await call


@pytest.fixture
async def table(proxy: Proxy, postgres_url: str) -> AsyncIterator[AsyncEngine]:
    """An engine that goes through the proxy, and a table `t` it has already used."""
    database = make_url(postgres_url).database
    url = proxy.url(f"postgresql+asyncpg://postgres@ignored/{database}")
    engine = create_async_engine(url, connect_args={"ssl": False, "timeout": 5})
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE t (x int PRIMARY KEY)"))
    yield engine
    await engine.dispose()


async def _insert(engine: AsyncEngine, value: int) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("INSERT INTO t VALUES (:x)"), {"x": value})


async def _values(engine: AsyncEngine) -> list[int]:
    async with engine.connect() as connection:
        return list(await connection.scalars(text("SELECT x FROM t ORDER BY x")))


async def test_the_lost_answer_to_a_commit_is_lost_once(proxy: Proxy, table: AsyncEngine) -> None:
    rule = proxy.lose_reply(command("COMMIT"), nth=2)
    await _insert(table, 1)
    await _refused(_insert(table, 2))
    rule.assert_fired(1)
    await _insert(table, 3)
    assert await _values(table) == [1, 2, 3]
    rule.assert_fired(1)


async def test_a_lost_commit_has_not_happened(proxy: Proxy, table: AsyncEngine) -> None:
    rule = proxy.lose_command(command("COMMIT"))
    await _refused(_insert(table, 1))
    rule.assert_fired(1)
    assert await _values(table) == []


async def test_prepared_statements_are_known_by_their_text(proxy: Proxy, table: AsyncEngine) -> None:
    await _insert(table, 1)  # from now on only its name is sent
    with proxy.lose_reply(statement("insert  into t")) as reply:
        await _refused(_insert(table, 2))
        reply.assert_fired(1)
    await _insert(table, 3)
    with proxy.lose_command(statement("INSERT INTO t")) as sent:
        await _refused(_insert(table, 4))
        sent.assert_fired(1)
    assert await _values(table) == [1, 3]


async def test_a_statement_that_failed_is_not_the_one_to_lose(proxy: Proxy, table: AsyncEngine) -> None:
    await _insert(table, 1)
    rule = proxy.lose_reply(statement("INSERT INTO t"))
    with pytest.raises(IntegrityError):
        await _insert(table, 1)
    rule.assert_fired(0)
    await _refused(_insert(table, 2))
    rule.assert_fired(1)


async def test_a_silent_loss_leaves_the_connection_open(
    proxy: Proxy, postgres: PostgresServer, postgres_url: str
) -> None:
    database = make_url(postgres_url).database
    assert database is not None
    connection = await _connect(proxy, database)
    await connection.execute("CREATE TABLE t (x int)")
    rule = proxy.lose_reply(statement("INSERT INTO t"), then="silent")
    async with asyncio.TaskGroup() as group:
        call = group.create_task(_lost(connection.execute("INSERT INTO t VALUES ($1)", 1)))
        await until(lambda: rule.count == 1)
        assert proxy.connections == 1
        assert not call.done()
        connection.terminate()
    assert call.result()
    assert postgres.execute("SELECT count(*) FROM t", database=database) == "1"


async def _lost(statement: Any) -> bool:
    with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, ConnectionError)):
        await statement
    return True
