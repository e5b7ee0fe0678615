"""A singleton's state in the database: fenced, versioned, and marked with the id of the commit that wrote it.

One statement a write. It knows nothing of Redis (the write-through does) nor of what the bytes mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from sqlalchemy import Connection, Row

from redis_cluster_kit.errors import Execution, FencedError, PersistenceFailedError
from redis_cluster_kit.identity import ShardId

from .database import Database
from .deadline import Deadline
from .fenced import HeldFence, fenced
from .statements import Statement

_INSERT = fenced("""
INSERT INTO rck_singleton_state
    (namespace, name, shard_group, shard, version, fence, nonce, commit_id, schema_version, body, updated_at)
SELECT
    :namespace, :name, :shard_group, :shard, 1, :fence, :nonce,
    :commit_id, :schema_version, :body, {clock_ms}
WHERE {held}
ON CONFLICT (namespace, name) DO NOTHING
RETURNING version
""")

_UPDATE = fenced("""
UPDATE rck_singleton_state
SET shard_group = :shard_group, shard = :shard, version = version + 1, fence = :fence, nonce = :nonce,
    commit_id = :commit_id, schema_version = :schema_version, body = :body, updated_at = {clock_ms}
WHERE namespace = :namespace AND name = :name AND version = :expected AND {held}
RETURNING version
""")

_READ = Statement("""
SELECT version, schema_version, body, fence, nonce, commit_id, updated_at, {clock_ms} - updated_at AS age_ms
FROM rck_singleton_state WHERE namespace = :namespace AND name = :name
""")

# One statement, hence one snapshot: who holds the shard, and what the last write was.
_LOOK_AGAIN = Statement("""
SELECT f.fence, f.nonce, s.version, s.commit_id
FROM rck_fences AS f
LEFT JOIN rck_singleton_state AS s ON s.namespace = f.namespace AND s.name = :name
WHERE f.namespace = :namespace AND f.shard_group = :shard_group AND f.shard = :shard
""")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Written:
    """The state stands in the database under this version."""

    version: int


@dataclass(frozen=True, slots=True)
class StoredState:
    """What a takeover starts from."""

    version: int
    schema_version: int
    body: bytes
    fence: int
    nonce: str
    commit_id: str
    updated_at: datetime
    age: timedelta
    """How long ago it was written, by the database's own clock."""


class SqlState:
    """The singleton states of one namespace."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    async def write(
        self,
        name: str,
        shard: ShardId,
        *,
        fence: int,
        nonce: str,
        expected_version: int,
        body: bytes,
        schema_version: int,
        commit_id: str,
        timeout: float,
    ) -> Written:
        """Write the version after `expected_version` (0: there is none yet).

        `FencedError`: another owner has the shard. After an `UNKNOWN` failure call again with the same
        `commit_id`: a write that went through is found by it and not repeated.
        """
        deadline = Deadline(timeout)
        held = HeldFence(self._namespace, shard.group, shard.number, fence, nonce)
        parameters = held.parameters() | {
            "name": name,
            "commit_id": commit_id,
            "schema_version": schema_version,
            "body": body,
        }
        if expected_version:
            parameters["expected"] = expected_version
        write = (_UPDATE if expected_version else _INSERT).on(self._database.dialect)

        def work(connection: Connection) -> int | None:
            return connection.execute(write, parameters).scalar()

        version = await self._database.statement(work, timeout=timeout)
        if version is None:
            version = await self._look_again(held, name, expected_version, commit_id, deadline.left)
        return Written(version)

    async def read(self, name: str, *, timeout: float) -> StoredState | None:
        """Return the state of the singleton `name`, None before its first write."""
        read = _READ.on(self._database.dialect)
        parameters = {"namespace": self._namespace, "name": name}

        def work(connection: Connection) -> StoredState | None:
            row = connection.execute(read, parameters).one_or_none()
            return None if row is None else _stored(row)

        return await self._database.read(work, timeout=timeout)

    async def _look_again(
        self, held: HeldFence, name: str, expected: int, commit_id: str, timeout: float
    ) -> int:
        """Find out why a write met no row: fenced, done before (its reply was lost), or another version."""
        look = _LOOK_AGAIN.on(self._database.dialect)
        parameters = {
            "namespace": held.namespace,
            "shard_group": held.shard_group,
            "shard": held.shard,
            "name": name,
        }

        def work(connection: Connection) -> tuple[int, str, int | None, str | None] | None:
            row = connection.execute(look, parameters).one_or_none()
            return None if row is None else (row.fence, row.nonce, row.version, row.commit_id)

        try:
            found = await self._database.read(work, timeout=timeout)
        except PersistenceFailedError as error:
            raise _unseen(error) from error
        if found is None or found[:2] != (held.fence, held.nonce):
            _raise_fenced(held, found)
        _, _, version, stored_commit = found
        if version is not None and stored_commit == commit_id:
            return version
        raise PersistenceFailedError(
            store="database",
            execution=Execution.REFUSED,
            is_retryable=False,
            detail=f"state of singleton {name!r}: expected version {expected}, found {version or 0}",
        )


def _unseen(error: PersistenceFailedError) -> PersistenceFailedError:
    """Only the look failed, but an earlier write under the same commit id may have gone through."""
    return PersistenceFailedError(
        store="database",
        execution=Execution.UNKNOWN,
        is_retryable=error.is_retryable,
        detail=f"the write met no row, and the reason could not be read: {error.detail}",
        cause=error,
    )


def _raise_fenced(held: HeldFence, found: tuple[int, str, int | None, str | None] | None) -> NoReturn:
    now = "was never granted" if found is None else f"is at fence {found[0]} of {found[1]}"
    raise FencedError(
        shard=str(ShardId(held.shard_group, held.shard)),
        fence=held.fence,
        store="database",
        detail=f"it {now}, the write came from {held.nonce}",
    )


def _stored(row: Row[tuple[object, ...]]) -> StoredState:
    return StoredState(
        version=row.version,
        schema_version=row.schema_version,
        body=bytes(row.body),
        fence=row.fence,
        nonce=row.nonce,
        commit_id=row.commit_id,
        updated_at=_EPOCH + timedelta(milliseconds=row.updated_at),
        age=timedelta(milliseconds=max(0, row.age_ms)),
    )
