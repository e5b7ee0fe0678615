"""The tables, as the ordered steps that make them. A step that was released is never edited: add another one.

Steps only add, so a runner of the release before goes on while a newer one joins; `migrations.py` does it.
Times are milliseconds since 1970 by the database's own clock, except `reserved_ms` (see `machine_ids.py`)
and what is said of a singleton's runs, of crons and of their instants: that is the data Redis' clock.
"""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """One version of the schema: what it adds, in words that both dialects share (see `statements.py`)."""

    version: int
    adds: str
    statements: tuple[str, ...]


VERSION_TABLE = "rck_schema"

CREATE_VERSION_TABLE = f"""
CREATE TABLE IF NOT EXISTS {VERSION_TABLE} (
    version INTEGER NOT NULL PRIMARY KEY
)
"""

_FENCES = """
CREATE TABLE IF NOT EXISTS rck_fences (
    namespace TEXT NOT NULL,
    shard_group TEXT NOT NULL,
    shard INTEGER NOT NULL,
    fence BIGINT NOT NULL CHECK (fence > 0),
    nonce TEXT NOT NULL,
    PRIMARY KEY (namespace, shard_group, shard)
)
"""

_RECORD = """
CREATE TABLE IF NOT EXISTS rck_record (
    namespace TEXT NOT NULL PRIMARY KEY,
    revision BIGINT NOT NULL,
    record TEXT NOT NULL
)
"""

_MACHINE_IDS = """
CREATE TABLE IF NOT EXISTS rck_machine_ids (
    namespace TEXT NOT NULL,
    machine_id INTEGER NOT NULL,
    nonce TEXT NOT NULL,
    leased_until BIGINT NOT NULL,
    reserved_ms BIGINT NOT NULL,
    PRIMARY KEY (namespace, machine_id)
)
"""

_SINGLETON_STATE = """
CREATE TABLE IF NOT EXISTS rck_singleton_state (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    shard_group TEXT NOT NULL,
    shard INTEGER NOT NULL,
    version BIGINT NOT NULL CHECK (version > 0),
    fence BIGINT NOT NULL,
    nonce TEXT NOT NULL,
    commit_id TEXT NOT NULL,
    schema_version INTEGER NOT NULL,
    body {bytes} NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (namespace, name)
)
"""

_KEY_VALUE = """
CREATE TABLE IF NOT EXISTS kv_store (
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    value {bytes} NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (namespace, key)
)
"""

_SINGLETON_METADATA = """
CREATE TABLE IF NOT EXISTS rck_singleton_metadata (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    shard_group TEXT NOT NULL,
    shard INTEGER NOT NULL,
    fence BIGINT NOT NULL,
    nonce TEXT NOT NULL,
    since BIGINT NOT NULL,
    last_run BIGINT,
    run_count BIGINT NOT NULL,
    last_error TEXT,
    failed_at BIGINT,
    heartbeat BIGINT NOT NULL,
    keep_ms BIGINT,
    served_at BIGINT NOT NULL,
    PRIMARY KEY (namespace, name)
)
"""

_SINGLETON_ASIDE = """
CREATE TABLE IF NOT EXISTS rck_singleton_aside (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    version BIGINT NOT NULL,
    schema_version INTEGER NOT NULL,
    body {bytes} NOT NULL,
    reason TEXT NOT NULL,
    kept_at BIGINT NOT NULL,
    PRIMARY KEY (namespace, name, version, kept_at)
)
"""

_EXECUTION = """
CREATE TABLE IF NOT EXISTS rck_execution (
    namespace TEXT NOT NULL,
    subject TEXT NOT NULL,
    execution TEXT NOT NULL,
    shard_group TEXT NOT NULL,
    shard INTEGER NOT NULL,
    opened_at BIGINT NOT NULL,
    keep_until BIGINT NOT NULL,
    failures INTEGER NOT NULL,
    last_error TEXT,
    aside_at BIGINT,
    PRIMARY KEY (namespace, subject, execution)
)
"""

_EXECUTION_KEPT = """
CREATE INDEX IF NOT EXISTS rck_execution_kept ON rck_execution (namespace, keep_until)
"""

_EXECUTION_ASIDE = """
CREATE INDEX IF NOT EXISTS rck_execution_aside ON rck_execution (namespace, aside_at)
    WHERE aside_at IS NOT NULL
"""

_STEP = """
CREATE TABLE IF NOT EXISTS rck_step (
    namespace TEXT NOT NULL,
    subject TEXT NOT NULL,
    execution TEXT NOT NULL,
    what TEXT NOT NULL,
    name TEXT NOT NULL,
    input TEXT NOT NULL,
    value {bytes} NOT NULL,
    recorded_at BIGINT NOT NULL,
    PRIMARY KEY (namespace, subject, execution, what, name)
)
"""

_DEFERRED = """
CREATE TABLE IF NOT EXISTS rck_deferred (
    namespace TEXT NOT NULL,
    subject TEXT NOT NULL,
    execution TEXT NOT NULL,
    name TEXT NOT NULL,
    shard_group TEXT NOT NULL,
    shard INTEGER NOT NULL,
    value {bytes},
    failure TEXT,
    resolved_at BIGINT NOT NULL,
    woken INTEGER NOT NULL,
    PRIMARY KEY (namespace, subject, execution, name)
)
"""

_DEFERRED_UNWOKEN = """
CREATE INDEX IF NOT EXISTS rck_deferred_unwoken ON rck_deferred (namespace, resolved_at) WHERE woken = 0
"""

_DEFERRED_RESOLVED = """
CREATE INDEX IF NOT EXISTS rck_deferred_resolved ON rck_deferred (namespace, resolved_at)
"""

_SINGLETON_ROUND = """
CREATE TABLE IF NOT EXISTS rck_singleton_round (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    number BIGINT NOT NULL,
    adopted TEXT,
    adopted_for TEXT,
    PRIMARY KEY (namespace, name)
)
"""

_SIGNING = """
CREATE TABLE IF NOT EXISTS rck_secret (
    namespace TEXT NOT NULL PRIMARY KEY,
    secret {bytes} NOT NULL
)
"""

_CRON = """
CREATE TABLE IF NOT EXISTS rck_cron (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    shard_group TEXT NOT NULL,
    shard INTEGER NOT NULL,
    expression TEXT NOT NULL,
    timezone TEXT NOT NULL,
    overlap TEXT NOT NULL,
    breaker_limit BIGINT NOT NULL,
    last_ms BIGINT NOT NULL,
    paused INTEGER NOT NULL,
    failures BIGINT NOT NULL,
    open_until BIGINT NOT NULL,
    run_count BIGINT NOT NULL,
    last_run BIGINT,
    last_error TEXT,
    failed_at BIGINT,
    since BIGINT NOT NULL,
    PRIMARY KEY (namespace, name)
)
"""

_CRON_INSTANT = """
CREATE TABLE IF NOT EXISTS rck_cron_instant (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    scheduled BIGINT NOT NULL,
    status TEXT NOT NULL,
    reason TEXT,
    message_id TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    begun BIGINT,
    heartbeat BIGINT,
    ended BIGINT,
    PRIMARY KEY (namespace, name, scheduled)
)
"""

_CRON_PENDING = """
CREATE INDEX IF NOT EXISTS rck_cron_instant_pending
ON rck_cron_instant (namespace, name, scheduled) WHERE status = 'pending'
"""

STEPS = (
    Step(1, "fence register, cluster record, machine ids", (_FENCES, _RECORD, _MACHINE_IDS)),
    Step(2, "singleton state", (_SINGLETON_STATE,)),
    Step(3, "key-value store", (_KEY_VALUE,)),
    Step(4, "singleton metadata, states kept aside", (_SINGLETON_METADATA, _SINGLETON_ASIDE)),
    Step(
        5,
        "durable steps: executions, steps, deferreds",
        (
            *(_EXECUTION, _EXECUTION_KEPT, _EXECUTION_ASIDE, _STEP),
            *(_DEFERRED, _DEFERRED_UNWOKEN, _DEFERRED_RESOLVED),
            *(_SINGLETON_ROUND, _SIGNING),
        ),
    ),
    Step(6, "crons and their instants", (_CRON, _CRON_INSTANT, _CRON_PENDING)),
)

SCHEMA_VERSION = STEPS[-1].version
