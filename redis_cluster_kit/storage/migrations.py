"""Brings a fresh or older database up to `schema.STEPS`, however many runners join at once.

No alembic: the kit lives inside other people's services and must touch neither their alembic history nor its
version table; a few additive steps under a lock are all it needs. A newer database is refused, never changed.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from redis_cluster_kit.errors import JoinRefusedError

from .schema import CREATE_VERSION_TABLE, SCHEMA_VERSION, STEPS, VERSION_TABLE, Step
from .statements import Dialect, words_of

if TYPE_CHECKING:
    from .database import Database

# First 8 bytes of BLAKE2b("rck:migrations"), as PostgreSQL's signed BIGINT: nobody else locks this number.
_LOCK = -0x61C8_19A8_1130_5561


async def bring_up(database: Database, *, timeout: float) -> None:
    """Apply the missing steps in one transaction; several runners wait for each other up to `timeout`."""
    # Looking first means that a service without the right to create tables can join a current database.
    if await stored_version(database, timeout=timeout) == SCHEMA_VERSION:
        return
    await database.transaction(
        functools.partial(_apply, dialect=database.dialect, timeout=timeout), timeout=timeout
    )


async def check(database: Database, *, timeout: float) -> None:
    """Raise `JoinRefusedError` unless the tables are those of this release; change nothing."""
    found = await stored_version(database, timeout=timeout)
    _refuse_newer(found)
    if found < SCHEMA_VERSION:
        raise JoinRefusedError(
            setting="database schema",
            expected=f"version {SCHEMA_VERSION}",
            found=f"version {found}" if found else "no tables",
            hint="run `rck migrate` with a role that may create tables, or set create_tables",
        )


async def stored_version(database: Database, *, timeout: float) -> int:
    """Return the version of the database's tables, 0 without any."""
    return await database.read(_version, timeout=timeout)


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table(VERSION_TABLE):
        return 0
    return connection.execute(text(f"SELECT max(version) FROM {VERSION_TABLE}")).scalar() or 0  # noqa: S608 our own name


def _apply(connection: Connection, *, dialect: Dialect, timeout: float) -> None:
    if dialect == "postgresql":
        _wait_for_other_runners(connection, timeout)
    found = _version(connection)
    _refuse_newer(found)
    connection.execute(text(CREATE_VERSION_TABLE))
    for step in STEPS:
        if step.version > found:
            _apply_step(connection, step, dialect)


def _apply_step(connection: Connection, step: Step, dialect: Dialect) -> None:
    for statement in step.statements:
        connection.execute(text(statement.format_map(words_of(dialect))))
    connection.execute(
        text(f"INSERT INTO {VERSION_TABLE} (version) VALUES (:version)"),  # noqa: S608 our own name
        {"version": step.version},
    )


def _wait_for_other_runners(connection: Connection, timeout: float) -> None:
    """Take the migration lock until the commit; SQLite has done so with BEGIN IMMEDIATE."""
    # A session's own limits are made for a lease's TTL: too short to wait for somebody else's migration.
    limit = f"{max(1, round(timeout * 1000))}ms"
    for setting in ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"):
        connection.execute(
            text("SELECT set_config(:setting, :limit, true)"), {"setting": setting, "limit": limit}
        )
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})


def _refuse_newer(found: int) -> None:
    if found > SCHEMA_VERSION:
        raise JoinRefusedError(
            setting="database schema",
            expected=f"at most version {SCHEMA_VERSION}",
            found=f"version {found}",
            hint="a newer release has migrated this database: update this service",
        )
