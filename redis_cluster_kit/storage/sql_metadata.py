"""A singleton's metadata in the database: one fenced row each. What the numbers mean is the leader's affair.

Beside it stands when somebody served the singleton last, by the database's clock: `leftovers.py` reads that.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sqlalchemy import Connection

from redis_cluster_kit.errors import FencedError
from redis_cluster_kit.identity import ShardId

from .database import Database
from .fenced import HeldFence, fenced
from .statements import Statement

_NOTE = fenced("""
INSERT INTO rck_singleton_metadata
    (namespace, name, shard_group, shard, fence, nonce, since, last_run, run_count, last_error, failed_at,
     heartbeat, keep_ms, served_at)
SELECT :namespace, :name, :shard_group, :shard, :fence, :nonce, :since, :last_run, :run_count, :last_error,
    :failed_at, :heartbeat, :keep_ms, {clock_ms}
WHERE {held}
ON CONFLICT (namespace, name) DO UPDATE
SET shard_group = excluded.shard_group, shard = excluded.shard, fence = excluded.fence,
    nonce = excluded.nonce, since = excluded.since, last_run = excluded.last_run,
    run_count = excluded.run_count, last_error = excluded.last_error, failed_at = excluded.failed_at,
    heartbeat = excluded.heartbeat, keep_ms = excluded.keep_ms, served_at = excluded.served_at
RETURNING fence
""")

_READ = Statement("""
SELECT since, last_run, run_count, last_error, failed_at, heartbeat
FROM rck_singleton_metadata WHERE namespace = :namespace AND name = :name
""")

_PLACES = Statement("""
SELECT name, shard_group, shard FROM rck_singleton_metadata WHERE namespace = :namespace
""")


@dataclass(frozen=True, slots=True)
class StoredMetadata:
    """What is noted of a singleton; times are milliseconds by the data Redis' clock."""

    since: int
    last_run: int | None
    run_count: int
    last_error: str | None
    failed_at: int | None
    heartbeat: int


class SqlMetadata:
    """The metadata of one namespace's singletons."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    async def note(
        self,
        name: str,
        shard: ShardId,
        metadata: StoredMetadata,
        *,
        fence: int,
        nonce: str,
        keep_ms: int | None,
        timeout: float,
    ) -> None:
        """Note it as the shard's owner; `FencedError` if somebody else is. Repeating it is safe."""
        held = HeldFence(self._namespace, shard.group, shard.number, fence, nonce)
        parameters = held.parameters() | asdict(metadata) | {"name": name, "keep_ms": keep_ms}
        note = _NOTE.on(self._database.dialect)

        def work(connection: Connection) -> object:
            return connection.execute(note, parameters).scalar()

        if await self._database.statement(work, timeout=timeout) is None:
            raise FencedError(shard=str(shard), fence=fence, store="database", detail="metadata not noted")

    async def read(self, name: str, *, timeout: float) -> StoredMetadata | None:
        """Return what is noted of a singleton, None before anything is."""
        read = _READ.on(self._database.dialect)
        parameters = {"namespace": self._namespace, "name": name}

        def work(connection: Connection) -> StoredMetadata | None:
            row = connection.execute(read, parameters).one_or_none()
            return None if row is None else StoredMetadata(*row)

        return await self._database.read(work, timeout=timeout)

    async def places(self, *, timeout: float) -> dict[str, ShardId]:
        """Return every singleton that something is noted of, with its shard."""
        places = _PLACES.on(self._database.dialect)
        parameters = {"namespace": self._namespace}

        def work(connection: Connection) -> dict[str, ShardId]:
            rows = connection.execute(places, parameters).all()
            return {name: ShardId(group, number) for name, group, number in rows}

        return await self._database.read(work, timeout=timeout)
