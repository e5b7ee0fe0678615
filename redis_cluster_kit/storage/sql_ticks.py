"""The row of an instant as its tick writes it: begun, alive, failed, done. Fenced by the tick's own shard.

What is written once may be written again: a caller that heard nothing repeats it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import Connection

from redis_cluster_kit.errors import FencedError

from .database import Database
from .fenced import HeldFence, fenced
from .sql_cron import Hold
from .statements import Statement

_PLACE = "namespace = :namespace AND name = :name AND scheduled = :scheduled"

# A dead one whose message is here was replayed by hand.
_BEGIN = fenced(f"""
UPDATE rck_cron_instant
SET status = 'pending', begun = coalesce(begun, :now_ms), heartbeat = :now_ms, attempt = :attempt
WHERE {_PLACE} AND status IN ('pending', 'dead')
    AND (begun IS NOT NULL OR status = 'dead' OR scheduled >= :oldest) AND {{held}}
RETURNING begun
""")  # noqa: S608 - our own words, here and below

_BEAT = fenced(f"""
UPDATE rck_cron_instant SET heartbeat = :now_ms WHERE {_PLACE} AND status = 'pending' AND {{held}}
RETURNING scheduled
""")  # noqa: S608

_END = fenced(f"""
UPDATE rck_cron_instant SET status = :status, reason = :reason, ended = :now_ms
WHERE {_PLACE} AND status = 'pending' AND {{held}}
RETURNING scheduled
""")  # noqa: S608

_COUNT_RUN = Statement("""
UPDATE rck_cron SET failures = 0, open_until = 0, last_run = :now_ms, run_count = run_count + 1
WHERE namespace = :namespace AND name = :name
""")

_COUNT_FAILURE = fenced("""
UPDATE rck_cron
SET failures = failures + 1, last_error = :last_error, failed_at = :now_ms,
    open_until = CASE WHEN breaker_limit > 0 AND failures + 1 >= breaker_limit THEN :open_until
        ELSE open_until END
WHERE namespace = :namespace AND name = :name AND {held}
RETURNING failures, open_until
""")

# One statement, hence one snapshot: who holds the shard, and what the row says.
_LOOK = Statement("""
SELECT f.fence, f.nonce, i.status
FROM rck_fences AS f
LEFT JOIN rck_cron_instant AS i ON i.namespace = f.namespace AND i.name = :name AND i.scheduled = :scheduled
WHERE f.namespace = :namespace AND f.shard_group = :shard_group AND f.shard = :shard
""")


class InstantRow(NamedTuple):
    """Which row, and the owner who writes it."""

    name: str
    scheduled: int
    hold: Hold


class SqlTicks:
    """The instants of one namespace, for the runners of their ticks."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    async def begin(self, row: InstantRow, *, attempt: int, now_ms: int, oldest: int, timeout: float) -> str:
        """Note an attempt; return `begun` or, if it goes on, `pending`; else what the row says.

        That is empty if there is none. `late` if it has never begun and is older than `oldest`. `FencedError`
        if the shard is another's.
        """
        given = {"attempt": attempt, "now_ms": now_ms, "oldest": oldest}
        begun = await self._write(_BEGIN, row, timeout, **given)
        if begun is not None:
            return "begun" if begun == now_ms else "pending"
        status = await self._look(row, timeout)
        return "late" if status == "pending" else status

    async def beat(self, row: InstantRow, *, now_ms: int, timeout: float) -> None:
        """Note that it is alive; `FencedError` if another runner has the shard."""
        if await self._write(_BEAT, row, timeout, now_ms=now_ms) is None:
            await self._look(row, timeout)

    async def end(
        self, row: InstantRow, status: str, *, reason: str | None = None, now_ms: int, timeout: float
    ) -> None:
        """Note that it is `skipped` or `dead`; nothing if it is over already."""
        if await self._write(_END, row, timeout, status=status, reason=reason, now_ms=now_ms) is None:
            await self._look(row, timeout)

    async def done(self, row: InstantRow, *, now_ms: int, timeout: float) -> None:
        """Note that it ended well, which also closes the cron's breaker; nothing if that is noted already."""
        end, count = _END.on(self._database.dialect), _COUNT_RUN.on(self._database.dialect)
        parameters = self._parameters(row) | {"status": "done", "reason": None, "now_ms": now_ms}
        counted = {name: parameters[name] for name in ("namespace", "name", "now_ms")}

        def work(connection: Connection) -> bool:
            if connection.execute(end, parameters).scalar() is None:
                return False
            connection.execute(count, counted)
            return True

        if not await self._database.transaction(work, timeout=timeout):
            await self._look(row, timeout)

    async def failed(
        self, row: InstantRow, error: str, *, open_until: int, now_ms: int, timeout: float
    ) -> tuple[int, int]:
        """Count a failed attempt; return how many there were in a row, and until when the breaker is open."""
        statement = _COUNT_FAILURE.on(self._database.dialect)
        parameters = self._parameters(row) | {
            "last_error": error,
            "open_until": open_until,
            "now_ms": now_ms,
        }
        del parameters["scheduled"]

        def work(connection: Connection) -> tuple[int, int] | None:
            found = connection.execute(statement, parameters).one_or_none()
            return None if found is None else (found.failures, found.open_until)

        counted = await self._database.statement(work, timeout=timeout)
        if counted is None:
            await self._look(row, timeout)
            return 0, 0  # somebody has deleted the cron's row
        return counted

    async def _write(self, write: Statement, row: InstantRow, timeout: float, **given: Any) -> int | None:
        """Return the number that the statement returns of the row it wrote; None if it wrote none."""
        statement = write.on(self._database.dialect)
        parameters = self._parameters(row) | given

        def work(connection: Connection) -> int | None:
            return connection.execute(statement, parameters).scalar()

        return await self._database.statement(work, timeout=timeout)

    async def _look(self, row: InstantRow, timeout: float) -> str:
        """Return what the row says; `FencedError` if the shard is another runner's."""
        statement = _LOOK.on(self._database.dialect)
        parameters = self._parameters(row)
        hold = row.hold
        for unused in ("fence", "nonce"):
            del parameters[unused]

        def work(connection: Connection) -> Any:
            return connection.execute(statement, parameters).one_or_none()

        found = await self._database.read(work, timeout=timeout)
        if found is None or (found.fence, found.nonce) != (hold.fence, hold.nonce):
            raise FencedError(
                shard=str(hold.shard), fence=hold.fence, store="database", detail="its tick is another's"
            )
        return found.status or ""

    def _parameters(self, row: InstantRow) -> dict[str, Any]:
        shard, fence, nonce = row.hold
        held = HeldFence(self._namespace, shard.group, shard.number, fence, nonce)
        return held.parameters() | {"name": row.name, "scheduled": row.scheduled}
