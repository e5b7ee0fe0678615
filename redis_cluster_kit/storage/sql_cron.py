"""Crons as their planners write them: registered, their last instant moved on, rows of instants inserted.

An instant's row is its own outbox, written together with the cron's last instant; the message follows it. All
that is due on one runner is one transaction, and a shard that another runner owns by now is left out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection

from redis_cluster_kit.identity import ShardId

from .database import Database
from .statements import Statement

# Every register row first, in the order in which grants lock them, then crons, then new instants. What ends a
# tick holds its register row and its instant while it waits for its cron: nothing can wait in a circle.
_HOLD = Statement("""
SELECT f.shard_group, f.shard FROM rck_fences AS f
JOIN {each_holds} ON f.shard_group = hold_group AND f.shard = hold_shard AND f.fence = hold_fence
    AND f.nonce = hold_nonce
WHERE f.namespace = :namespace
ORDER BY f.shard_group, f.shard
{for_share_of_fences}
""")

_REGISTER = Statement("""
INSERT INTO rck_cron
    (namespace, name, shard_group, shard, expression, timezone, overlap, breaker_limit, last_ms, paused,
     failures, open_until, run_count, since)
SELECT :namespace, cron_name, cron_group, cron_shard, cron_expression, cron_timezone, cron_overlap,
    cron_limit, :now_ms, 0, 0, 0, 0, :now_ms
FROM {each_crons}
WHERE true
ON CONFLICT (namespace, name) DO UPDATE
SET shard_group = excluded.shard_group, shard = excluded.shard, expression = excluded.expression,
    timezone = excluded.timezone, overlap = excluded.overlap, breaker_limit = excluded.breaker_limit
RETURNING name, last_ms
""")

# Whether a paused cron will be so at an instant to come is not known before that instant.
_MOVE = Statement("""
UPDATE rck_cron SET last_ms = move_ms FROM {each_moves}
WHERE namespace = :namespace AND name = move_name AND last_ms < move_ms AND (paused = 0 OR move_ms <= :now_ms)
RETURNING name, paused, breaker_limit, failures, open_until
""")

_BUSY = Statement("""
SELECT DISTINCT name FROM rck_cron_instant
WHERE namespace = :namespace AND status = 'pending' AND name IN (SELECT listed FROM {each_names})
""")

# A row that is there stays as it is: its message, sent again, does what the row says.
_INSERT = Statement("""
INSERT INTO rck_cron_instant (namespace, name, scheduled, status, reason, message_id, attempt, ended)
SELECT :namespace, instant_name, instant_ms, instant_status, instant_reason, instant_id, 0,
    CASE WHEN instant_status = 'pending' THEN NULL ELSE :now_ms END
FROM {each_instants}
WHERE true
ON CONFLICT (namespace, name, scheduled) DO NOTHING
""")

_PENDING = Statement("""
SELECT name, scheduled FROM rck_cron_instant
WHERE namespace = :namespace AND status = 'pending' AND name IN (SELECT listed FROM {each_names})
    AND (scheduled, name) > (:after_ms, :after_name) AND scheduled <= :before_ms
ORDER BY scheduled, name LIMIT :most
""")

_CLEAN = Statement("""
DELETE FROM rck_cron_instant WHERE namespace = :namespace AND (name, scheduled) IN (
    SELECT i.name, i.scheduled FROM rck_cron_instant AS i
    WHERE i.namespace = :namespace AND i.name IN (SELECT listed FROM {each_names})
        AND i.status <> 'pending' AND i.scheduled < :before_ms
        AND (i.status <> 'dead' OR i.scheduled < :dead_before)
    LIMIT :most
)
""")

_WELL = Statement("""
SELECT name FROM rck_cron
WHERE namespace = :namespace AND failures = 0 AND name IN (SELECT listed FROM {each_names})
""")


class Hold(NamedTuple):
    """A shard, and what its owner presents."""

    shard: ShardId
    fence: int
    nonce: str


@dataclass(frozen=True, slots=True)
class RegisteredCron:
    """A cron as its runner has it."""

    name: str
    shard: ShardId
    expression: str
    timezone: str
    overlap: str
    breaker_limit: int
    """Failed attempts in a row that open its breaker; 0: it has none."""


@dataclass(frozen=True, slots=True)
class DueInstant:
    """An instant that has come."""

    name: str
    scheduled: int
    message_id: str
    is_alone: bool = False
    """It is skipped while an earlier one is not done."""


class Planned(NamedTuple):
    """What became of due instants: messages to be sent, skipped ones with the reason; and shards we lost.

    Of those before their time some are postponed: what becomes of them is decided at the instant.
    """

    pending: list[DueInstant]
    skipped: list[tuple[DueInstant, str]]
    postponed: list[DueInstant]
    lost: set[ShardId]


class SqlCrons:
    """What planners keep of one namespace's crons."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    async def register(
        self, holds: Iterable[Hold], crons: Iterable[RegisteredCron], *, now_ms: int, timeout: float
    ) -> dict[str, int]:
        """Write what is registered; return the last instant of those whose shard is ours.

        A new cron begins now. A changed expression keeps the last instant.
        """
        given = list(crons)

        def work(connection: Connection) -> dict[str, int]:
            held = self._hold(connection, holds)
            rows = [_row_of(cron) for cron in given if cron.shard in held]
            found = self._run(connection, _REGISTER, crons=rows, now_ms=now_ms)
            return {row.name: row.last_ms for row in found}

        return await self._database.transaction(work, timeout=timeout)

    async def plan(
        self,
        holds: Mapping[str, Hold],
        due: Sequence[DueInstant],
        *,
        now_ms: int,
        timeout: float,
    ) -> Planned:
        """Move the last instants on and insert the rows; `holds` by the crons' names.

        An instant that is not after the last one is left out: somebody has planned it. One after `now_ms`
        gets its row before its time; it must be of a cron whose ticks may overlap and that has no breaker.
        """

        def work(connection: Connection) -> Planned:
            held = self._hold(connection, set(holds.values()))
            ours = [one for one in due if holds[one.name].shard in held]
            last = {one.name: one.scheduled for one in ours}
            moves = [{"move_name": name, "move_ms": moment} for name, moment in last.items()]
            moved = {row.name: row for row in self._run(connection, _MOVE, moves=moves, now_ms=now_ms)}
            postponed = [one for one in ours if one.name not in moved and one.scheduled > now_ms]
            planned = Planned([], [], postponed, {hold.shard for hold in holds.values()} - held)
            busy = self._busy(connection, ours, moved)
            for one in ours:
                if one.name in moved and not moved[one.name].paused:
                    _judge(one, moved[one.name], busy, now_ms, planned)
            self._insert(connection, planned, now_ms)
            return planned

        return await self._database.transaction(work, timeout=timeout)

    async def pending(
        self, names: Iterable[str], after: tuple[int, str], *, before_ms: int, most: int, timeout: float
    ) -> list[tuple[str, int]]:
        """Return instants that are not done, as (name, scheduled), in order of time."""
        listed = [{"listed": name} for name in names]

        def work(connection: Connection) -> list[tuple[str, int]]:
            rows = self._run(
                connection,
                _PENDING,
                names=listed,
                after_ms=after[0],
                after_name=after[1],
                before_ms=before_ms,
                most=most,
            )
            return [(row.name, row.scheduled) for row in rows]

        return await self._database.read(work, timeout=timeout)

    async def clean(
        self, names: Iterable[str], *, before_ms: int, dead_before: int, most: int, timeout: float
    ) -> int:
        """Forget some rows that are over, return how many: a message without a row runs nothing."""
        listed = [{"listed": name} for name in names]

        def work(connection: Connection) -> int:
            done = self._run(
                connection, _CLEAN, names=listed, before_ms=before_ms, dead_before=dead_before, most=most
            )
            return int(done.rowcount)

        return await self._database.statement(work, timeout=timeout)

    async def well(self, names: Iterable[str], *, timeout: float) -> set[str]:
        """Return those of these crons whose last tick ended without an error."""
        listed = [{"listed": name} for name in names]

        def work(connection: Connection) -> set[str]:
            return {row.name for row in self._run(connection, _WELL, names=listed)}

        return await self._database.read(work, timeout=timeout)

    # Parts of a transaction

    def _run(self, connection: Connection, statement: Statement, **given: Any) -> Any:
        parameters = {
            name: msgspec.json.encode(value).decode() if isinstance(value, list) else value
            for name, value in given.items()
        }
        return connection.execute(
            statement.on(self._database.dialect), parameters | {"namespace": self._namespace}
        )

    def _hold(self, connection: Connection, holds: Iterable[Hold]) -> set[ShardId]:
        """Return the shards whose owner the register still names; they stay so until the commit."""
        rows = [
            {
                "hold_group": hold.shard.group,
                "hold_shard": hold.shard.number,
                "hold_fence": hold.fence,
                "hold_nonce": hold.nonce,
            }
            for hold in holds
        ]
        return {ShardId(row[0], row[1]) for row in self._run(connection, _HOLD, holds=rows)}

    def _busy(self, connection: Connection, due: Iterable[DueInstant], moved: Mapping[str, Any]) -> set[str]:
        """Return the crons with an instant that is not done, of those for which it matters."""
        asked = {
            one.name for one in due if one.name in moved and (one.is_alone or _is_tripped(moved[one.name]))
        }
        if not asked:
            return set()
        return {row[0] for row in self._run(connection, _BUSY, names=[{"listed": name} for name in asked])}

    def _insert(self, connection: Connection, planned: Planned, now_ms: int) -> None:
        rows = [_row_of_instant(one, "pending", None) for one in planned.pending]
        rows += [_row_of_instant(one, "skipped", reason) for one, reason in planned.skipped]
        if rows:
            self._run(connection, _INSERT, instants=rows, now_ms=now_ms)


def _judge(one: DueInstant, cron: Any, busy: set[str], now_ms: int, planned: Planned) -> None:
    """Decide what an instant becomes. A breaker that has been open for long enough lets one through."""
    reason = ""
    if _is_tripped(cron) and (now_ms < cron.open_until or one.name in busy):
        reason = "breaker"
    elif one.is_alone and one.name in busy:
        reason = "overlap"
    if reason:
        planned.skipped.append((one, reason))
    else:
        planned.pending.append(one)
        busy.add(one.name)


def _is_tripped(cron: Any) -> bool:
    return bool(cron.breaker_limit and cron.failures >= cron.breaker_limit)


def _row_of(cron: RegisteredCron) -> dict[str, object]:
    return {
        "cron_name": cron.name,
        "cron_group": cron.shard.group,
        "cron_shard": cron.shard.number,
        "cron_expression": cron.expression,
        "cron_timezone": cron.timezone,
        "cron_overlap": cron.overlap,
        "cron_limit": cron.breaker_limit,
    }


def _row_of_instant(one: DueInstant, status: str, reason: str | None) -> dict[str, object]:
    return {
        "instant_name": one.name,
        "instant_ms": one.scheduled,
        "instant_status": status,
        "instant_reason": reason,
        "instant_id": one.message_id,
    }
