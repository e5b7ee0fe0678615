"""The fence register: the one place that decides the order of owners. Who may ask is decided by the lease.

A fence is never handed out twice and never goes back, whatever Redis forgets. Rows are never deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from sqlalchemy import Connection

from .database import Database
from .statements import Statement

# Rows are locked in the order they come: sorted by shard, two takeovers of the same shards cannot deadlock.
_GRANT = Statement("""
INSERT INTO rck_fences (namespace, shard_group, shard, fence, nonce)
SELECT :namespace, :shard_group, CAST(p.key AS INTEGER), {greatest}(CAST(p.value AS BIGINT), 1), :nonce
FROM {each_proposal}
WHERE true
ORDER BY CAST(p.key AS INTEGER)
ON CONFLICT (namespace, shard_group, shard) DO UPDATE
SET fence = {greatest}(rck_fences.fence + 1, excluded.fence), nonce = excluded.nonce
RETURNING shard, fence
""")

_READ = Statement("""
SELECT shard, fence, nonce FROM rck_fences WHERE namespace = :namespace AND shard_group = :shard_group
""")


class FenceRegister:
    """The fences of one namespace."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    async def grant(
        self, group: str, proposals: Mapping[int, int], nonce: str, *, timeout: float
    ) -> dict[int, int]:
        """Give every shard in `proposals` a new fence, at least the proposed one; one statement for all.

        After an `UNKNOWN` failure the fences may have moved: grant again, the earlier ones are then stale.
        """
        if not proposals:
            return {}
        parameters = self._parameters(group) | {
            "nonce": nonce,
            "proposals": msgspec.json.encode(dict(proposals)).decode(),
        }
        grant = _GRANT.on(self._database.dialect)

        def work(connection: Connection) -> dict[int, int]:
            return {row.shard: row.fence for row in connection.execute(grant, parameters)}

        return await self._database.statement(work, timeout=timeout)

    async def read(self, group: str, shards: Iterable[int], *, timeout: float) -> dict[int, tuple[int, str]]:
        """Return `(fence, nonce)` of those shards that were ever granted."""
        wanted = frozenset(shards)
        read = _READ.on(self._database.dialect)

        def work(connection: Connection) -> dict[int, tuple[int, str]]:
            rows = connection.execute(read, self._parameters(group))
            return {row.shard: (row.fence, row.nonce) for row in rows if row.shard in wanted}

        return await self._database.read(work, timeout=timeout)

    def _parameters(self, group: str) -> dict[str, object]:
        return {"namespace": self._namespace, "shard_group": group}
