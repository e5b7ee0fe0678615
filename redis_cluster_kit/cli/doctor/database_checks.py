"""Judges the database: reachable, quick, the right version of the tables, durable commits, rights."""

from __future__ import annotations

from datetime import timedelta

from redis_cluster_kit.cli.commands import explain
from redis_cluster_kit.errors import PersistenceFailedError
from redis_cluster_kit.storage import (
    SCHEMA_VERSION,
    ClusterRecord,
    Database,
    DatabaseFacts,
    inspect_database,
    is_too_new,
)

from .finding import Finding, ok, problem, warning

_TIMEOUT = 5.0


async def read_facts(database: Database) -> DatabaseFacts | Finding:
    """Return the facts, or the finding that the database cannot be asked."""
    try:
        return await inspect_database(database, timeout=_TIMEOUT)
    except PersistenceFailedError as error:
        advice = "without it no shard finds a new owner: start it, or correct RCK_DATABASE"
        return problem("database", repr(database), explain(error), advice)


def judge_database(facts: DatabaseFacts, where: str, ttl: timedelta) -> list[Finding]:
    """Return the verdicts on a database that answers."""
    findings = [_latency(facts, where, ttl), _schema(facts, where)]
    if facts.refused:
        advice = "GRANT SELECT, INSERT, UPDATE, DELETE on the rck_ tables to the service's role"
        findings.append(problem("database rights", where, ", ".join(facts.refused), advice))
    return findings + (_postgres(facts, where) if facts.dialect == "postgresql" else _sqlite(facts, where))


def judge_absence(record: ClusterRecord | None) -> Finding:
    """Return what it means that no database was given."""
    if record is not None and record.database_uuid:
        return warning("database", "-", "not examined", "set RCK_DATABASE or add --database")
    advice = "fences are then only as good as Redis' memory: give the cluster a database"
    return warning("database", "-", "none", advice)


def _latency(facts: DatabaseFacts, where: str, ttl: timedelta) -> Finding:
    shown = (
        f"{facts.dialect} {facts.settings.get('server_version', '')} answers in {facts.seconds * 1000:.1f} ms"
    )
    if facts.seconds > ttl.total_seconds() / 6:
        advice = "a takeover's fences must come within a third of the TTL: bring it nearer, or raise the TTL"
        return problem("database", where, shown, advice)
    return ok("database", where, shown)


def _schema(facts: DatabaseFacts, where: str) -> Finding:
    check, version = "schema", facts.schema_version
    if version == SCHEMA_VERSION:
        return ok(check, where, f"version {version}")
    if is_too_new(version):
        advice = "a newer release has migrated it: update this service"
        return problem(check, where, f"version {version}, this release knows {SCHEMA_VERSION}", advice)
    found = f"version {version}" if version else "no tables"
    advice = "joining brings it up; if the service may not create tables, run rck migrate"
    return warning(check, where, f"{found}, this release needs {SCHEMA_VERSION}", advice)


def _postgres(facts: DatabaseFacts, where: str) -> list[Finding]:
    findings: list[Finding] = []
    if (
        facts.settings.get("in_recovery") == "true"
        or facts.settings.get("default_transaction_read_only") == "on"
    ):
        advice = "grants must be written: connect to the primary (target_session_attrs=read-write)"
        findings.append(problem("writable", where, "a replica, or read only", advice))
    synchronous = facts.settings.get("synchronous_commit", "unknown")
    if facts.settings.get("fsync") == "off":
        advice = "a crash may forget grants, and fences go back: set fsync = on"
        findings.append(problem("durable commits", where, "fsync off", advice))
    elif synchronous == "off":
        advice = "the kit's own sessions turn it on; your transactions may still be forgotten by a crash"
        findings.append(warning("durable commits", where, "synchronous_commit off", advice))
    else:
        findings.append(ok("durable commits", where, f"synchronous_commit {synchronous}, fsync on"))
    return findings


def _sqlite(facts: DatabaseFacts, where: str) -> list[Finding]:
    shown = f"journal_mode {facts.settings.get('journal_mode')}"
    advice = "an SQLite file binds the cluster to one host; on several, use PostgreSQL"
    return [ok("durable commits", where, shown, advice)]
