"""Crons as anybody may look at them and steer them: listed, paused, resumed, triggered. No fence is needed.

Whoever pauses or triggers owns nothing: it changes what the planner reads with its next instant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from .database import Database
from .statements import Statement

_LIST = Statement("""
SELECT c.name, c.shard_group, c.expression, c.timezone, c.overlap, c.breaker_limit, c.last_ms, c.paused,
    c.failures, c.open_until, c.run_count, c.last_run, c.last_error, c.failed_at,
    (SELECT count(*) FROM rck_cron_instant AS i
     WHERE i.namespace = c.namespace AND i.name = c.name AND i.status = 'pending') AS pending
FROM rck_cron AS c WHERE c.namespace = :namespace ORDER BY c.name
""")

_PAUSE = Statement("""
UPDATE rck_cron SET paused = 1 WHERE namespace = :namespace AND name = :name RETURNING name
""")

# What is planned for a time to come is after the pause. Locked is a row only whose tick begins: it has come.
_HOLD_BACK = Statement("""
UPDATE rck_cron_instant SET status = 'skipped', reason = 'paused', ended = :now_ms
WHERE namespace = :namespace AND name = :name AND scheduled IN (
    SELECT scheduled FROM rck_cron_instant
    WHERE namespace = :namespace AND name = :name AND scheduled > :now_ms AND status = 'pending'
        AND begun IS NULL AND scheduled % 1000 = 0
    {if_free}
)
""")

# What has passed while it was paused is past, also if nobody was there to plan it.
_RESUME = Statement("""
UPDATE rck_cron
SET last_ms = CASE WHEN paused = 1 THEN {greatest}(last_ms, :now_ms) ELSE last_ms END, paused = 0
WHERE namespace = :namespace AND name = :name RETURNING name
""")

_LET_COME = Statement("""
UPDATE rck_cron_instant SET status = 'pending', reason = NULL, ended = NULL
WHERE namespace = :namespace AND name = :name AND scheduled > :now_ms AND reason = 'paused'
""")

# Its planner and other triggers wait meanwhile: what may not overlap is looked up and inserted as one.
_LOCK = Statement("""
UPDATE rck_cron SET overlap = overlap WHERE namespace = :namespace AND name = :name RETURNING name
""")

_TRIGGER = Statement("""
INSERT INTO rck_cron_instant (namespace, name, scheduled, status, message_id, attempt)
SELECT c.namespace, c.name, :scheduled, 'pending', :message_id, 0 FROM rck_cron AS c
WHERE c.namespace = :namespace AND c.name = :name AND (c.overlap = 'allow' OR NOT EXISTS (
    SELECT 1 FROM rck_cron_instant AS i
    WHERE i.namespace = :namespace AND i.name = :name AND i.status = 'pending'
))
ON CONFLICT (namespace, name, scheduled) DO NOTHING
RETURNING scheduled
""")


@dataclass(frozen=True, slots=True)
class StoredCron:
    """A cron as the database has it; times are milliseconds by the data Redis' clock."""

    name: str
    shard_group: str
    expression: str
    timezone: str
    overlap: str
    breaker_limit: int
    last_ms: int
    paused: bool
    failures: int
    open_until: int
    run_count: int
    last_run: int | None
    last_error: str | None
    failed_at: int | None
    pending: int
    """Its instants that are not done."""


class SqlCronView:
    """The crons of one namespace."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    async def list(self, *, timeout: float) -> list[StoredCron]:
        """Return all that were ever registered, by name."""
        statement = _LIST.on(self._database.dialect)

        def work(connection: Connection) -> list[StoredCron]:
            rows = connection.execute(statement, {"namespace": self._namespace}).mappings()
            return [_stored(dict(row)) for row in rows]

        return await self._database.read(work, timeout=timeout)

    async def pause(self, name: str, *, now_ms: int, timeout: float) -> bool:
        """Let its instants after now pass; False if there is no such cron."""
        return await self._steer((_PAUSE, _HOLD_BACK), name, now_ms, timeout)

    async def resume(self, name: str, *, now_ms: int, timeout: float) -> bool:
        """Plan it again, from now on; False if there is no such cron."""
        return await self._steer((_RESUME, _LET_COME), name, now_ms, timeout)

    async def trigger(self, name: str, scheduled: int, message_id: str, *, timeout: float) -> bool:
        """Insert a row for now; False if there is one, or if it may not overlap and is not done."""
        lock, insert = (one.on(self._database.dialect) for one in (_LOCK, _TRIGGER))
        cron = {"namespace": self._namespace, "name": name}

        def work(connection: Connection) -> bool:
            connection.execute(lock, cron)
            given = cron | {"scheduled": scheduled, "message_id": message_id}
            return connection.execute(insert, given).scalar() is not None

        return await self._database.transaction(work, timeout=timeout)

    async def _steer(
        self, writes: tuple[Statement, Statement], name: str, now_ms: int, timeout: float
    ) -> bool:
        """Write the cron's row, which its planner waits for, then what is planned ahead."""
        of_cron, of_instants = (one.on(self._database.dialect) for one in writes)
        given = {"namespace": self._namespace, "name": name, "now_ms": now_ms}

        def work(connection: Connection) -> bool:
            if connection.execute(of_cron, given).scalar() is None:
                return False
            connection.execute(of_instants, given)
            return True

        return await self._database.transaction(work, timeout=timeout)


def _stored(row: dict[str, Any]) -> StoredCron:
    row["paused"] = bool(row["paused"])
    return StoredCron(**row)
