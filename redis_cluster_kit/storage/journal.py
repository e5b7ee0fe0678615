"""The journal of durable executions: what their steps returned and until when they sleep, recorded fenced.

An execution has a row of its own, which its steps hang on. What stands is what was recorded first; what a
result means, and when an execution ends, is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection

from redis_cluster_kit.errors import FencedError
from redis_cluster_kit.identity import ShardId

from .database import Database
from .fenced import HeldFence, fenced
from .statements import Statement

_OPEN = fenced("""
INSERT INTO rck_execution
    (namespace, subject, execution, shard_group, shard, opened_at, keep_until, failures)
SELECT :namespace, :subject, :execution, :shard_group, :shard, {clock_ms}, {clock_ms} + :keep_ms, 0
WHERE {held}
ON CONFLICT (namespace, subject, execution) DO UPDATE SET keep_until = excluded.keep_until
RETURNING failures
""")

_READ = Statement("""
SELECT what, name, input, value FROM rck_step
WHERE namespace = :namespace AND subject = :subject AND execution = :execution
""")

# The execution's row is locked too: whoever deletes it waits, and then deletes this step as well.
_RECORD = fenced("""
, open AS (
    SELECT 1 FROM rck_execution
    WHERE namespace = :namespace AND subject = :subject AND execution = :execution
    {for_share}
)
INSERT INTO rck_step (namespace, subject, execution, what, name, input, value, recorded_at)
SELECT :namespace, :subject, :execution, :what, :name, :input, :value, {clock_ms}
WHERE {held} AND EXISTS (SELECT 1 FROM open)
ON CONFLICT (namespace, subject, execution, what, name) DO NOTHING
RETURNING input
""")

# One statement, hence one snapshot: who holds the shard, whether the execution is open, and what stands.
_LOOK_AGAIN = Statement("""
SELECT f.fence, f.nonce, e.execution, s.input, s.value
FROM rck_fences AS f
LEFT JOIN rck_execution AS e
    ON e.namespace = f.namespace AND e.subject = :subject AND e.execution = :execution
LEFT JOIN rck_step AS s
    ON s.namespace = f.namespace AND s.subject = :subject AND s.execution = :execution
    AND s.what = :what AND s.name = :name
WHERE f.namespace = :namespace AND f.shard_group = :shard_group AND f.shard = :shard
""")

_KEEP = Statement("""
UPDATE rck_execution SET keep_until = {clock_ms} + :keep_ms
WHERE namespace = :namespace AND (subject, execution) IN (
    SELECT {place_0}, {place_1} FROM {each_place}
)
""")

_EXPIRED = Statement("""
SELECT subject, execution, shard_group, shard FROM rck_execution
WHERE namespace = :namespace AND keep_until < {clock_ms} AND aside_at IS NULL
ORDER BY keep_until LIMIT :most
""")


class Entry(NamedTuple):
    """One durable call as it is recorded."""

    what: str
    """`step` or `sleep`."""
    name: str
    input: str
    """A digest of its input."""
    value: bytes


class ExecutionClosedError(Exception):
    """The execution has ended meanwhile: what was begun in it is not recorded."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which execution, and who writes."""

    subject: str
    """Whose it is: `e:type:id` of an entity, `s:name` of a singleton."""
    execution: str
    shard: ShardId
    fence: int
    nonce: str

    def parameters(self, namespace: str) -> dict[str, object]:
        """Return what identifies it, with the guard's parameters."""
        shard = self.shard
        held = HeldFence(namespace, shard.group, shard.number, self.fence, self.nonce)
        return held.parameters() | {"subject": self.subject, "execution": self.execution}

    def fenced(self) -> FencedError:
        """Return the error of a write that was refused."""
        return FencedError(
            shard=str(self.shard),
            fence=self.fence,
            store="database",
            detail=f"a durable call of {self.subject} was not recorded",
        )


class Journal:
    """The executions of one namespace."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    async def open(self, place: Place, *, keep_ms: int, timeout: float) -> Sequence[Entry]:
        """Begin or resume an execution, fenced; return what is recorded of it."""

        def work(connection: Connection) -> list[Entry] | None:
            return self.open_within(connection, place, keep_ms)

        found = await self._database.transaction(work, timeout=timeout)
        if found is None:
            raise place.fenced()
        return found

    def open_within(self, connection: Connection, place: Place, keep_ms: int) -> list[Entry] | None:
        """Do the same inside a transaction; None: fenced."""
        parameters = place.parameters(self._namespace)
        begin, read = (part.on(self._database.dialect) for part in (_OPEN, _READ))
        if connection.execute(begin, parameters | {"keep_ms": keep_ms}).scalar() is None:
            return None
        where = {name: parameters[name] for name in ("namespace", "subject", "execution")}
        rows = connection.execute(read, where)
        return [Entry(row.what, row.name, row.input, bytes(row.value)) for row in rows]

    async def record(self, place: Place, entry: Entry, *, timeout: float) -> Entry:
        """Record a durable call as the shard's owner; return what stands: this, or what was there before.

        After an `UNKNOWN` failure call again. `ExecutionClosedError`: it belongs to no open execution.
        """
        parameters = place.parameters(self._namespace) | entry._asdict()
        record = _RECORD.on(self._database.dialect)

        def work(connection: Connection) -> str | None:
            return connection.execute(record, parameters).scalar()

        if await self._database.statement(work, timeout=timeout) is not None:
            return entry
        return await self._look_again(place, entry, timeout)

    async def _look_again(self, place: Place, entry: Entry, timeout: float) -> Entry:
        """Find out why nothing was recorded: fenced, closed, or recorded before."""
        look = _LOOK_AGAIN.on(self._database.dialect)
        parameters = place.parameters(self._namespace) | {"what": entry.what, "name": entry.name}
        del parameters["fence"], parameters["nonce"]

        def work(connection: Connection) -> tuple[int, str, str | None, str | None, bytes | None] | None:
            row = connection.execute(look, parameters).one_or_none()
            return None if row is None else (row.fence, row.nonce, row.execution, row.input, row.value)

        found = await self._database.read(work, timeout=timeout)
        if found is None or found[:2] != (place.fence, place.nonce):
            raise place.fenced()
        _, _, execution, input, value = found
        if input is None or value is None:
            raise ExecutionClosedError(f"execution {place.execution} of {place.subject} is {execution}")
        return Entry(entry.what, entry.name, input, bytes(value))

    async def expired(self, *, most: int, timeout: float) -> Sequence[tuple[str, str, ShardId]]:
        """Return executions, as (subject, execution, shard), that nobody has touched for their retention."""
        expired = _EXPIRED.on(self._database.dialect)

        def work(connection: Connection) -> list[tuple[str, str, ShardId]]:
            rows = connection.execute(expired, {"namespace": self._namespace, "most": most})
            return [(row.subject, row.execution, ShardId(row.shard_group, row.shard)) for row in rows]

        return await self._database.read(work, timeout=timeout)

    async def keep(self, places: Iterable[tuple[str, str]], *, keep_ms: int, timeout: float) -> None:
        """Keep executions, each as (subject, execution), for so long from now."""
        given = msgspec.json.encode(list(places)).decode()
        parameters = {"namespace": self._namespace, "places": given, "keep_ms": keep_ms}
        keep = _KEEP.on(self._database.dialect)

        def work(connection: Connection) -> None:
            connection.execute(keep, parameters)

        await self._database.statement(work, timeout=timeout)

    async def forget(self, places: Iterable[tuple[str, str]], *, timeout: float) -> None:
        """Forget executions, each as (subject, execution), with their steps and deferreds."""
        given = msgspec.json.encode(list(places)).decode()
        parameters = {"namespace": self._namespace, "places": given}
        statements = [part.on(self._database.dialect) for part in _FORGET]

        def work(connection: Connection) -> None:
            for statement in statements:
                connection.execute(statement, parameters)

        await self._database.transaction(work, timeout=timeout)


# The execution first: a step that is being recorded holds it, and is there when steps are deleted.
_FORGET = [
    Statement(f"""
DELETE FROM {table} WHERE namespace = :namespace AND (subject, execution) IN (
    SELECT {{place_0}}, {{place_1}} FROM {{each_place}}
)
""")  # noqa: S608 - our own names
    for table in ("rck_execution", "rck_step", "rck_deferred")
]
