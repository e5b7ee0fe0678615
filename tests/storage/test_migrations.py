"""Tables: made for a fresh database, brought up in an older one, refused where they do not fit."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import make_url

from redis_cluster_kit.embedded import PostgresServer
from redis_cluster_kit.errors import Execution, JoinRefusedError, PersistenceFailedError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.settings import DatabaseSettings
from redis_cluster_kit.storage import Database, FenceRegister, SqlState, migrations, schema
from redis_cluster_kit.storage.schema import SCHEMA_VERSION, STEPS, Step

Raw = Callable[[str], Awaitable[list[tuple[Any, ...]]]]

TIMEOUT = 10.0
TTL = timedelta(seconds=5)


async def _version(database: Database) -> int:
    return await migrations.stored_version(database, timeout=TIMEOUT)


def _release_of_version_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "STEPS", STEPS[:1])
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", 1)


def test_steps_are_numbered_without_gaps_and_end_at_the_version() -> None:
    assert [step.version for step in STEPS] == list(range(1, SCHEMA_VERSION + 1))


async def test_a_fresh_database_is_brought_up_and_then_left_alone(empty_database: Database, raw: Raw) -> None:
    assert await _version(empty_database) == 0
    await empty_database.prepare(True)
    await empty_database.prepare(True)
    await empty_database.prepare(False)
    assert await raw(f"SELECT version FROM {schema.VERSION_TABLE} ORDER BY version") == [
        (step.version,) for step in STEPS
    ]


async def test_an_older_database_is_brought_up_and_keeps_its_fences(
    empty_database: Database, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register, states = FenceRegister(empty_database, namespace), SqlState(empty_database, namespace)
    with monkeypatch.context() as older:
        _release_of_version_1(older)
        await empty_database.prepare(True)
    assert await _version(empty_database) == 1
    first = await register.grant("g", {0: 41}, "old", timeout=TIMEOUT)
    with pytest.raises(PersistenceFailedError) as missing:
        await states.read("report", timeout=TIMEOUT)
    assert (missing.value.execution, missing.value.is_retryable) == (Execution.REFUSED, False)
    await empty_database.prepare(True)
    assert await _version(empty_database) == SCHEMA_VERSION
    assert first == {0: 41}
    fence = (await register.grant("g", {0: 0}, "new", timeout=TIMEOUT))[0]
    assert fence == 42
    written = await states.write(
        "report",
        ShardId("g", 0),
        fence=fence,
        nonce="new",
        expected_version=0,
        body=b"",
        schema_version=1,
        commit_id="c",
        timeout=TIMEOUT,
    )
    assert written.version == 1


async def test_runners_that_join_at_the_same_moment_migrate_once(
    database_url: str, crew: Any, raw: Raw, namespace: str
) -> None:
    await crew.act(database_url, [{"do": "prepare"}] * 4)
    assert len(await raw(f"SELECT version FROM {schema.VERSION_TABLE}")) == len(STEPS)


async def test_a_runner_waits_for_somebody_elses_migration(
    database_url: str, hold: Any, waited_for: Any
) -> None:
    """Longer than a session's own lock limit, a third of the TTL, would let it."""
    async with Database(database_url, DatabaseSettings(), ttl=timedelta(seconds=0.5)) as database:
        assert await _version(database) == 0
        async with hold(database) as held:
            if not database.is_sqlite:  # there BEGIN IMMEDIATE has locked the file
                await held.execute(f"SELECT pg_advisory_xact_lock({migrations._LOCK})")  # pyright: ignore[reportPrivateUsage]
            joining = asyncio.create_task(database.prepare(True))
            await waited_for(held)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(joining), timeout=0.3)
            await held.commit()
            await joining
        assert await _version(database) == SCHEMA_VERSION


@pytest.mark.parametrize("standing", [0, 1])
async def test_without_create_tables_a_database_that_is_behind_is_refused_unchanged(
    empty_database: Database, monkeypatch: pytest.MonkeyPatch, standing: int
) -> None:
    if standing:
        with monkeypatch.context() as older:
            _release_of_version_1(older)
            await empty_database.prepare(True)
    with pytest.raises(JoinRefusedError, match="rck migrate") as refused:
        await empty_database.prepare(False)
    assert refused.value.expected == f"version {SCHEMA_VERSION}"
    assert refused.value.found == ("version 1" if standing else "no tables")
    assert await _version(empty_database) == standing


@pytest.mark.parametrize("create_tables", [True, False])
async def test_a_newer_database_is_refused_unchanged(
    database: Database, raw: Raw, create_tables: bool
) -> None:
    newer = SCHEMA_VERSION + 1
    await raw(f"INSERT INTO {schema.VERSION_TABLE} (version) VALUES ({newer})")
    with pytest.raises(JoinRefusedError, match="update this service") as refused:
        await database.prepare(create_tables)
    assert refused.value.found == f"version {newer}"
    assert await _version(database) == newer


async def test_a_migration_that_fails_leaves_nothing_behind(
    empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Step(SCHEMA_VERSION + 1, "nothing", ("CREATE TABLE rck_half (x INTEGER)", "CREATE NONSENSE"))
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "STEPS", (*STEPS, broken))
        patch.setattr(migrations, "SCHEMA_VERSION", broken.version)
        with pytest.raises(PersistenceFailedError) as failed:
            await empty_database.prepare(True)
    assert failed.value.execution is Execution.REFUSED
    assert await _version(empty_database) == 0
    await empty_database.prepare(True)
    assert await _version(empty_database) == SCHEMA_VERSION


# --- A role with few rights ---


@pytest.fixture
async def poor_url(postgres: PostgresServer, postgres_url: str) -> AsyncIterator[str]:
    """The database, through a role that may read and write rows but create nothing."""
    role, database = f"r_{uuid.uuid4().hex[:12]}", make_url(postgres_url).database
    assert database is not None
    postgres.execute(
        f"CREATE ROLE {role} LOGIN; "
        f"ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE ON TABLES TO {role}",
        database=database,
    )
    yield make_url(postgres_url).set(username=role).render_as_string(hide_password=False)
    postgres.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}", database=database)


async def test_a_role_without_the_right_to_create_tables_joins_a_current_database(
    poor_url: str, postgres_url: str, namespace: str
) -> None:
    async with Database(poor_url, DatabaseSettings(), ttl=TTL) as poor:
        with pytest.raises(PersistenceFailedError, match="permission denied") as denied:
            await poor.prepare(True)
        assert (denied.value.execution, denied.value.is_retryable) == (Execution.REFUSED, False)
        async with Database(postgres_url, DatabaseSettings(), ttl=TTL) as rich:
            await rich.prepare(True)
        await poor.prepare(True)
        assert await FenceRegister(poor, namespace).grant("g", {0: 0}, "n", timeout=TIMEOUT) == {0: 1}
