"""The proxy in byte mode before a real PostgreSQL, whose commits it can leave in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from sqlalchemy.engine import make_url

from redis_cluster_kit.embedded import PostgresServer
from redis_cluster_kit.testing import Proxy, until


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


async def _lost(statement: Any) -> bool:
    with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, ConnectionError)):
        await statement
    return True
