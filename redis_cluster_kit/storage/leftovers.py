"""What singletons leave behind: states that could not be decoded, and states nobody serves any more.

A state is forgotten when its `state_ttl` has passed, by the database's clock, since a leader noted anything:
by its next leader before it begins, or by whoever owns the shard meanwhile.
"""

from __future__ import annotations

from sqlalchemy import Connection

from redis_cluster_kit.errors import FencedError
from redis_cluster_kit.identity import ShardId

from .database import Database
from .fenced import HeldFence, fenced
from .statements import Statement

_KEEP = fenced("""
INSERT INTO rck_singleton_aside (namespace, name, version, schema_version, body, reason, kept_at)
SELECT :namespace, :name, :version, s.schema_version, s.body, :reason, s.updated_at
FROM rck_singleton_state AS s
WHERE s.namespace = :namespace AND s.name = :name AND s.version = :version AND {held}
ON CONFLICT (namespace, name, version, kept_at) DO UPDATE SET reason = excluded.reason
RETURNING version
""")

_IS_OVER = "keep_ms IS NOT NULL AND served_at < {clock_ms} - keep_ms"

_EXPIRED = Statement(f"""
SELECT name, shard_group, shard FROM rck_singleton_metadata
WHERE namespace = :namespace AND {_IS_OVER} ORDER BY name LIMIT 100
""")  # noqa: S608 - our own words

_FORGET_STATE = fenced(f"""
DELETE FROM rck_singleton_state
WHERE namespace = :namespace AND name = :name AND {{held}} AND EXISTS (
    SELECT 1 FROM rck_singleton_metadata AS m
    WHERE m.namespace = :namespace AND m.name = :name AND {_IS_OVER}
)
""")  # noqa: S608

_FORGET_METADATA = fenced(f"""
DELETE FROM rck_singleton_metadata
WHERE namespace = :namespace AND name = :name AND {_IS_OVER} AND {{held}}
RETURNING name
""")  # noqa: S608


# Versions count from 1 again: no execution of the state that is gone may be taken for one of the next.
_NEXT_ROUND = fenced("""
UPDATE rck_singleton_round SET number = number + 1 WHERE namespace = :namespace AND name = :name AND {held}
""")


class Leftovers:
    """What the singletons of one namespace left behind."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    async def keep_aside(
        self, name: str, shard: ShardId, *, version: int, reason: str, fence: int, nonce: str, timeout: float
    ) -> None:
        """Copy the state of this version to where no later write reaches it. Repeating it is safe."""
        parameters = self._held(shard, fence, nonce) | {"name": name, "version": version, "reason": reason}
        keep = _KEEP.on(self._database.dialect)

        def work(connection: Connection) -> object:
            return connection.execute(keep, parameters).scalar()

        if await self._database.statement(work, timeout=timeout) is None:
            raise FencedError(shard=str(shard), fence=fence, store="database", detail="state not kept aside")

    async def expired(self, *, timeout: float) -> list[tuple[str, ShardId]]:
        """Return singletons whose `state_ttl` has passed, with their shards; at most 100 at a time."""
        expired = _EXPIRED.on(self._database.dialect)

        def work(connection: Connection) -> list[tuple[str, ShardId]]:
            rows = connection.execute(expired, {"namespace": self._namespace})
            return [(row.name, ShardId(row.shard_group, row.shard)) for row in rows]

        return await self._database.read(work, timeout=timeout)

    async def forget_expired(
        self, name: str, shard: ShardId, *, fence: int, nonce: str, timeout: float
    ) -> bool:
        """Forget a singleton's state if its time has passed and the shard is ours; return whether."""
        parameters = self._held(shard, fence, nonce) | {"name": name}
        state, round, metadata = (
            part.on(self._database.dialect) for part in (_FORGET_STATE, _NEXT_ROUND, _FORGET_METADATA)
        )

        def work(connection: Connection) -> bool:
            if connection.execute(state, parameters).rowcount:
                connection.execute(round, parameters)
            return connection.execute(metadata, parameters).scalar() is not None

        return await self._database.transaction(work, timeout=timeout)

    def _held(self, shard: ShardId, fence: int, nonce: str) -> dict[str, object]:
        return HeldFence(self._namespace, shard.group, shard.number, fence, nonce).parameters()
