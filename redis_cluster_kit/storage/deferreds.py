"""Deferreds in the database: each is resolved once, by a value or by an error, whoever comes first.

A row is there only when it is resolved. Whether its waiter was woken is noted beside it: what resolved it may
die before it can do that, and then any runner does. The secret that tokens are signed with is kept here, too.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection

from redis_cluster_kit.errors import PersistenceFailedError
from redis_cluster_kit.identity import ShardId

from .database import Database
from .statements import Statement

_RESOLVE = Statement("""
INSERT INTO rck_deferred
    (namespace, subject, execution, name, shard_group, shard, value, failure, resolved_at, woken)
VALUES (:namespace, :subject, :execution, :name, :shard_group, :shard, :value, :failure, {clock_ms}, 0)
ON CONFLICT (namespace, subject, execution, name) DO NOTHING
RETURNING name
""")

_READ = Statement("""
SELECT value, failure FROM rck_deferred
WHERE namespace = :namespace AND subject = :subject AND execution = :execution AND name = :name
""")

_WOKEN = Statement("""
UPDATE rck_deferred SET woken = 1
WHERE namespace = :namespace AND woken = 0 AND (subject, execution) IN (
    SELECT {place_0}, {place_1} FROM {each_place}
)
""")

_UNWOKEN = Statement("""
SELECT DISTINCT subject, execution, shard_group, shard FROM rck_deferred
WHERE namespace = :namespace AND woken = 0 AND resolved_at < {clock_ms} - :age_ms
LIMIT :most
""")

# A deferred may be resolved after its execution ended, or before it began.
_FORGET_ORPHANS = Statement("""
DELETE FROM rck_deferred WHERE namespace = :namespace AND (subject, execution, name) IN (
    SELECT d.subject, d.execution, d.name FROM rck_deferred AS d
    WHERE d.namespace = :namespace AND d.resolved_at < {clock_ms} - :age_ms AND NOT EXISTS (
        SELECT 1 FROM rck_execution AS e
        WHERE e.namespace = d.namespace AND e.subject = d.subject AND e.execution = d.execution
    )
    LIMIT :most
)
""")

_KEEP_SECRET = Statement("""
INSERT INTO rck_secret (namespace, secret) VALUES (:namespace, :secret)
ON CONFLICT (namespace) DO NOTHING
""")

_SECRET = Statement("SELECT secret FROM rck_secret WHERE namespace = :namespace")


class DeferredPlace(NamedTuple):
    """Which deferred."""

    subject: str
    execution: str
    name: str
    shard: ShardId


class Resolution(NamedTuple):
    """What a deferred was resolved with: an encoded value, or else the text of a failure."""

    value: bytes | None
    failure: str | None


class Waiting(NamedTuple):
    """An execution that may wait for a deferred that is resolved."""

    subject: str
    execution: str
    shard: ShardId


class Deferreds:
    """The deferreds of one namespace."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    async def resolve(self, place: DeferredPlace, resolution: Resolution, *, timeout: float) -> bool:
        """Resolve a deferred; False if it had been. After an `UNKNOWN` failure its answer tells nothing."""
        parameters = {
            "namespace": self._namespace,
            "subject": place.subject,
            "execution": place.execution,
            "name": place.name,
            "shard_group": place.shard.group,
            "shard": place.shard.number,
            **resolution._asdict(),
        }
        resolve = _RESOLVE.on(self._database.dialect)

        def work(connection: Connection) -> bool:
            return connection.execute(resolve, parameters).scalar() is not None

        return await self._database.statement(work, timeout=timeout)

    async def read(self, subject: str, execution: str, name: str, *, timeout: float) -> Resolution | None:
        """Return what a deferred was resolved with, None if it was not."""
        read = _READ.on(self._database.dialect)
        parameters = {
            "namespace": self._namespace,
            "subject": subject,
            "execution": execution,
            "name": name,
        }

        def work(connection: Connection) -> Resolution | None:
            row = connection.execute(read, parameters).one_or_none()
            if row is None:
                return None
            return Resolution(None if row.value is None else bytes(row.value), row.failure)

        return await self._database.read(work, timeout=timeout)

    async def woken(self, executions: Iterable[tuple[str, str]], *, timeout: float) -> None:
        """Note that these executions know of everything resolved for them so far."""
        given = msgspec.json.encode(list(executions)).decode()
        woken = _WOKEN.on(self._database.dialect)

        def work(connection: Connection) -> None:
            connection.execute(woken, {"namespace": self._namespace, "places": given})

        await self._database.statement(work, timeout=timeout)

    async def unwoken(self, *, age_ms: int, most: int, timeout: float) -> Sequence[Waiting]:
        """Return executions that nobody has woken although a deferred of theirs was resolved so long ago."""
        unwoken = _UNWOKEN.on(self._database.dialect)
        parameters = {"namespace": self._namespace, "age_ms": age_ms, "most": most}

        def work(connection: Connection) -> list[Waiting]:
            return [
                Waiting(row.subject, row.execution, ShardId(row.shard_group, row.shard))
                for row in connection.execute(unwoken, parameters)
            ]

        return await self._database.read(work, timeout=timeout)

    async def forget_orphans(self, *, age_ms: int, most: int, timeout: float) -> int:
        """Forget deferreds resolved so long ago that belong to no execution; return how many."""
        forget = _FORGET_ORPHANS.on(self._database.dialect)
        parameters = {"namespace": self._namespace, "age_ms": age_ms, "most": most}

        def work(connection: Connection) -> int:
            return connection.execute(forget, parameters).rowcount

        return await self._database.statement(work, timeout=timeout)

    async def secret(self, *, timeout: float) -> bytes:
        """Return what this cluster signs tokens with; made when it is first asked for, and never changed."""
        found = await self._read_secret(timeout)
        if found is None:
            keep = _KEEP_SECRET.on(self._database.dialect)
            parameters = {"namespace": self._namespace, "secret": secrets.token_bytes(32)}

            def work(connection: Connection) -> None:
                connection.execute(keep, parameters)

            await self._database.statement(work, timeout=timeout)
            found = await self._read_secret(timeout)
        if found is None:
            raise PersistenceFailedError(store="database", detail="the secret of this cluster was deleted")
        return found

    async def _read_secret(self, timeout: float) -> bytes | None:
        read = _SECRET.on(self._database.dialect)

        def work(connection: Connection) -> bytes | None:
            found = connection.execute(read, {"namespace": self._namespace}).scalar()
            return None if found is None else bytes(found)

        return await self._database.read(work, timeout=timeout)
