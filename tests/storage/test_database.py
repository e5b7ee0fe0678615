"""What goes wrong with a database comes out as our errors, says what is known, and shows no secret."""

from __future__ import annotations

import asyncio
import logging
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url, text

from redis_cluster_kit.embedded import PostgresServer
from redis_cluster_kit.embedded.redis_server import free_port
from redis_cluster_kit.errors import Execution, JoinRefusedError, KitError, PersistenceFailedError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.settings import DatabaseSettings
from redis_cluster_kit.storage import Database, FenceRegister, SqlState
from redis_cluster_kit.testing import Proxy

TIMEOUT = 10.0
TTL = timedelta(seconds=5)
SECRET = "hunter2"


def _open(url: str) -> Database:
    return Database(url, DatabaseSettings(), ttl=TTL)


async def _grant(database: Database, namespace: str, timeout: float = TIMEOUT) -> int:
    return (await FenceRegister(database, namespace).grant("g", {0: 0}, "n", timeout=timeout))[0]


# --- A server that is not there, stands still, or forgets to answer ---


async def test_a_server_that_died_is_a_retryable_error_until_it_is_back(
    private_postgres: PostgresServer, namespace: str
) -> None:
    async with _open(private_postgres.url) as database:
        await database.prepare(True)
        before = await _grant(database, namespace)
        private_postgres.kill()
        for _ in range(3):  # the pooled connection that broke, then new ones that are refused
            with pytest.raises(PersistenceFailedError) as failed:
                await _grant(database, namespace)
            assert (failed.value.store, failed.value.is_retryable) == ("database", True)
            assert failed.value.execution is Execution.NOT_EXECUTED
        private_postgres.restart()
        assert await _grant(database, namespace) == before + 1
        private_postgres.pause()
        with pytest.raises(PersistenceFailedError, match=r"within 0\.2 s") as slow:
            await _grant(database, namespace, timeout=0.2)
        assert (slow.value.execution, slow.value.is_retryable) == (Execution.NOT_EXECUTED, True)
        private_postgres.resume()
        assert await _grant(database, namespace) == before + 2


async def test_a_write_whose_answer_is_lost_is_unknown_and_found_by_its_commit_id(
    postgres: PostgresServer, postgres_database: Database, postgres_url: str, held_postgres: Any,
    namespace: str, waited_for: Any,
) -> None:  # fmt: skip
    fence = await _grant(postgres_database, namespace)

    async def write(through: Database, timeout: float) -> int:
        written = await SqlState(through, namespace).write(
            "report",
            ShardId("g", 0),
            fence=fence,
            nonce="n",
            expected_version=0,
            body=b"x",
            schema_version=1,
            commit_id="c",
            timeout=timeout,
        )
        return written.version

    socket = str(postgres.folder / f".s.PGSQL.{postgres.port}")
    async with Proxy.to_unix(socket, speaks="bytes") as proxy:
        place = make_url(postgres_url)
        far = place.set(host=proxy.host, port=proxy.port, query={}).render_as_string(hide_password=False)
        async with _open(far) as database:
            await held_postgres.execute("SELECT 1 FROM rck_fences FOR UPDATE")
            writing = asyncio.create_task(write(database, 1.0))
            await waited_for(held_postgres)  # the statement is at the server: only its answer can be lost
            with proxy.cut("to_client", on_lift="silent") as cut:
                await held_postgres.commit()
                with pytest.raises(PersistenceFailedError) as failed:
                    await writing
                cut.assert_fired()
            assert (failed.value.execution, failed.value.is_retryable) == (Execution.UNKNOWN, True)
            assert await write(database, TIMEOUT) == 1
    stored = await SqlState(postgres_database, namespace).read("report", timeout=TIMEOUT)
    assert stored is not None
    assert stored.version == 1


async def test_what_the_server_refuses_is_told_as_refused(empty_database: Database, namespace: str) -> None:
    with pytest.raises(PersistenceFailedError, match="rck_fences") as failed:
        await _grant(empty_database, namespace)
    assert (failed.value.execution, failed.value.is_retryable) == (Execution.REFUSED, False)
    assert "SELECT" not in str(failed.value), "the statement is too much for a message"


async def test_statements_of_a_transaction_take_effect_together_or_not_at_all(
    database: Database, namespace: str
) -> None:
    insert = text("INSERT INTO rck_record (namespace, revision, record) VALUES (:namespace, 1, '')")

    def twice(connection: Any) -> None:
        for _ in range(2):
            connection.execute(insert, {"namespace": namespace})

    with pytest.raises(PersistenceFailedError) as failed:
        await database.transaction(twice, timeout=TIMEOUT)
    assert failed.value.execution is Execution.REFUSED
    count = text("SELECT count(*) FROM rck_record")
    assert await database.read(lambda connection: connection.execute(count).scalar(), timeout=TIMEOUT) == 0


async def test_a_pool_that_is_in_use_does_not_hold_a_caller_beyond_its_timeout(
    database_url: str, namespace: str, hold: Any, waited_for: Any
) -> None:
    async with Database(database_url, DatabaseSettings(pool_size=1), ttl=TTL) as database:
        await database.prepare(True)
        before = await _grant(database, namespace)
        async with hold(database) as held:
            await held.execute("UPDATE rck_fences SET nonce = 'x'")
            first = asyncio.create_task(_grant(database, namespace))
            await waited_for(held)
            with pytest.raises(PersistenceFailedError, match="waiting for a connection") as failed:
                await _grant(database, namespace, timeout=0.1)
            assert failed.value.execution is Execution.NOT_EXECUTED
            await held.commit()
            assert await first == before + 1


# --- SQLite files ---


async def test_a_file_that_cannot_be_opened_is_a_typed_error(tmp_path: Path, namespace: str) -> None:
    async with _open(f"sqlite+aiosqlite:///{tmp_path}/nowhere/x.db") as database:
        with pytest.raises(PersistenceFailedError, match="unable to open") as failed:
            await database.prepare(True)
    assert failed.value.execution is Execution.NOT_EXECUTED


async def test_a_file_that_is_no_database_is_a_typed_error_and_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    file.write_text("a letter, not a database\n" * 100)
    async with _open(f"sqlite+aiosqlite:///{file}") as database:
        with pytest.raises(PersistenceFailedError, match="not a database") as failed:
            await database.prepare(True)
    assert not failed.value.is_retryable
    assert file.read_text().startswith("a letter")


async def test_commits_on_a_file_are_on_the_disk_before_they_are_answered(sqlite_database: Database) -> None:
    def settings(connection: Any) -> tuple[Any, Any]:
        asked = ("journal_mode", "synchronous")
        return tuple(connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in asked)

    assert await sqlite_database.read(settings, timeout=TIMEOUT) == ("wal", 2)


async def test_sessions_on_postgres_have_limits_below_the_ttl(postgres_database: Database) -> None:
    names = ("idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout")

    def settings(connection: Any) -> list[int]:
        asked = text("SELECT CAST(setting AS INTEGER) FROM pg_settings WHERE name = :name")
        return [connection.execute(asked, {"name": name}).scalar() for name in names]

    limits = await postgres_database.read(settings, timeout=60.0)
    assert all(0 < limit < TTL / timedelta(milliseconds=1) for limit in limits), limits


# --- URLs, and what they hide ---


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (f"postgresql+asyncpg://u:{SECRET}@h:port/d", "not a database URL"),
        (f"{SECRET}", "not a database URL"),
        (f"postgresql://u:{SECRET}@h/d", "postgresql://…"),
        (f"mysql+aiomysql://u:{SECRET}@h/d", "mysql+aiomysql://…"),
        ("sqlite+aiosqlite://", "in memory"),
        ("sqlite+aiosqlite:///:memory:", "in memory"),
        ("sqlite+aiosqlite:///file:x?mode=memory&uri=true", "in memory"),
    ],
)
def test_a_url_that_cannot_serve_is_refused_without_showing_it(url: str, told: str) -> None:
    with pytest.raises(JoinRefusedError, match="database should be") as refused:
        _open(url)
    assert told in str(refused.value.found)
    assert SECRET not in _everything_told(refused.value)


@pytest.fixture
def guarded_postgres(private_postgres: PostgresServer) -> PostgresServer:
    """A server that wants a password on its port."""
    rules = private_postgres.folder / "data" / "pg_hba.conf"
    rules.write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
    private_postgres.execute("ALTER ROLE postgres PASSWORD 'the right one'")
    private_postgres.restart()
    return private_postgres


async def test_a_password_is_shown_nowhere(
    guarded_postgres: PostgresServer, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused by the server, and refused by the port."""
    caplog.set_level(logging.DEBUG)
    place = make_url(guarded_postgres.url).set(password=SECRET)
    errors: list[PersistenceFailedError] = []
    for port in (place.port, free_port()):
        database = _open(place.set(port=port).render_as_string(hide_password=False))
        assert SECRET not in repr(database)
        async with database:
            with pytest.raises(PersistenceFailedError) as failed:
                await _grant(database, namespace)
        errors.append(failed.value)
        assert SECRET not in _everything_told(failed.value)
    assert "password authentication failed" in str(errors[0])
    assert [error.execution for error in errors] == [Execution.NOT_EXECUTED] * 2
    assert [error.is_retryable for error in errors] == [False, True]
    assert SECRET not in caplog.text


def _everything_told(error: KitError) -> str:
    shown = [str(error), repr(error), *traceback.format_exception(error)]
    chain: BaseException | None = error
    while chain is not None:
        shown += [str(chain), repr(chain), repr(chain.args)]
        chain = chain.__cause__ or chain.__context__
    return "\n".join(shown)


# --- Its lifetime ---


async def test_a_database_is_used_inside_its_block_only_and_may_be_opened_again(
    sqlite_url: str, namespace: str
) -> None:
    database = _open(sqlite_url)
    with pytest.raises(RuntimeError, match="not open"):
        await database.prepare(True)
    for fence in (1, 2):
        async with database:
            await database.prepare(True)
            assert await _grant(database, namespace) == fence
            with pytest.raises(RuntimeError, match="open already"):
                await database.__aenter__()


def test_only_a_file_binds_the_cluster_to_one_host(sqlite_url: str) -> None:
    assert _open(sqlite_url).host_bound
    assert not _open("postgresql+asyncpg://h/d").host_bound
