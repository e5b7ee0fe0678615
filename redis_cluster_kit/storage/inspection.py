"""Facts about a database for `rck doctor` and `rck migrate`: read only, judged elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import Connection, inspect, text

from redis_cluster_kit.clock import Clock

from .database import Database
from .migrations import stored_version
from .schema import SCHEMA_VERSION, STEPS, VERSION_TABLE

_PINGS = 5
_NEEDED = ("SELECT", "INSERT", "UPDATE", "DELETE")
_SETTINGS = ("server_version", "synchronous_commit", "fsync", "default_transaction_read_only")


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """What the database said of itself."""

    dialect: str
    seconds: float
    """The median time of an answer."""
    schema_version: int
    settings: dict[str, str] = field(default_factory=dict[str, str])
    refused: tuple[str, ...] = ()
    """`TABLE: RIGHT` of what the present role may not do to our tables."""


def pending_steps(version: int) -> list[str]:
    """Return what a migration from `version` would add, in words, in order."""
    return [f"version {step.version}: {step.adds}" for step in STEPS if step.version > version]


def is_too_new(version: int) -> bool:
    """Whether a newer release has migrated the database."""
    return version > SCHEMA_VERSION


async def inspect_database(database: Database, *, timeout: float) -> DatabaseFacts:
    """Ask everything once; `PersistenceFailedError` if the database does not answer."""
    times: list[float] = []
    for _ in range(_PINGS):
        started = Clock.boot()
        await database.ping(timeout=timeout)
        times.append(Clock.boot() - started)
    version = await stored_version(database, timeout=timeout)
    work = _sqlite_facts if database.is_sqlite else _postgres_facts
    settings, refused = await database.read(work, timeout=timeout)
    return DatabaseFacts(database.dialect, sorted(times)[_PINGS // 2], version, settings, refused)


def _postgres_facts(connection: Connection) -> tuple[dict[str, str], tuple[str, ...]]:
    # A session of ours turns synchronous_commit on where it is off: what the server would do is asked.
    rows = connection.execute(
        text("SELECT name, coalesce(reset_val, setting) FROM pg_settings WHERE name = ANY(:names)"),
        {"names": list(_SETTINGS)},
    )
    settings = {row[0]: row[1] for row in rows}
    settings["in_recovery"] = str(connection.execute(text("SELECT pg_is_in_recovery()")).scalar()).lower()
    refused = tuple(
        f"{table}: {right}"
        for table in _our_tables(connection)
        for right in _NEEDED
        if not connection.execute(
            text("SELECT has_table_privilege(CAST(:table AS text), CAST(:right AS text))"),
            {"table": table, "right": right},
        ).scalar()
    )
    return settings, refused


def _sqlite_facts(connection: Connection) -> tuple[dict[str, str], tuple[str, ...]]:
    names = ("journal_mode", "synchronous")
    settings = {name: str(connection.execute(text(f"PRAGMA {name}")).scalar()) for name in names}
    settings["server_version"] = str(connection.execute(text("SELECT sqlite_version()")).scalar())
    return settings, ()


def _our_tables(connection: Connection) -> list[str]:
    return sorted(
        name
        for name in inspect(connection).get_table_names()
        if name.startswith("rck_") and name != VERSION_TABLE
    )
