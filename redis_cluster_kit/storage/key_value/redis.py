"""A key-value store in Redis: one hash a partition, so that values spread over a Redis Cluster.

It speaks through lanes and one script. A write whose answer was lost is not repeated: meanwhile somebody
else may have written, and a repeat would undo that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from redis_cluster_kit.identity import shard_number
from redis_cluster_kit.redis_access import Keyspace, Lanes, RedisUrl, Script
from redis_cluster_kit.settings import RedisSettings

from .base import BaseStore
from .contract import VALUE_LIMIT

COMPARE_AND_SET = Script.load("key_value/compare_and_set")

_AT_ONCE = 500


class RedisStore(BaseStore):
    """`async with RedisStore.open("redis://…", namespace="shop") as store:`.

    Values last as long as Redis' data do: they are as safe as its persistence.
    """

    def __init__(self, lanes: Lanes, keyspace: Keyspace, *, value_limit: int = VALUE_LIMIT) -> None:
        """Use lanes that somebody else opens and closes."""
        super().__init__(value_limit=value_limit)
        self._lanes = lanes
        self._keyspace = keyspace

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        namespace: str = "default",
        partitions: int = 16,
        settings: RedisSettings | None = None,
        value_limit: int = VALUE_LIMIT,
    ) -> AsyncGenerator[RedisStore]:
        """Open a store with a connection of its own.

        `partitions` must be the same wherever this namespace is used, as `ShardSettings.partitions`.
        """
        keyspace = Keyspace(namespace, partitions)
        async with Lanes(RedisUrl.parse(url), settings or RedisSettings()) as lanes:
            yield cls(lanes, keyspace, value_limit=value_limit)

    def __repr__(self) -> str:
        return f"RedisStore(namespace={self._keyspace.namespace!r})"

    async def _read(self, key: str) -> bytes | None:
        slot, values = self._place(key)
        found: bytes | None = await self._lanes.call(slot, "HGET", values, key, repeat=True)
        return found

    async def _write(self, key: str, value: bytes) -> None:
        slot, values = self._place(key)
        await self._lanes.call(slot, "HSET", values, key, value)

    async def _delete(self, key: str) -> bool:
        slot, values = self._place(key)
        return bool(await self._lanes.call(slot, "HDEL", values, key))

    async def _swap(self, key: str, before: bytes | None, after: bytes | None) -> bool:
        slot, values = self._place(key)
        outcome = await COMPARE_AND_SET(
            self._lanes,
            slot,
            store=values,
            name=key,
            existed=before is not None,
            expected=before or b"",
            stays=after is not None,
            value=after or b"",
        )
        return outcome.word == "ok"

    async def _count(self, prefix: str) -> int:
        return sum(await asyncio.gather(*(self._count_in(place, prefix) for place in self._partitions)))

    async def _count_in(self, partition: int, prefix: str) -> int:
        if prefix:
            return len(await self._names(partition, prefix))
        slot, values = self._keyspace.slots[partition], self._keyspace.values(partition)
        count: int = await self._lanes.call(slot, "HLEN", values, repeat=True)
        return count

    async def _wipe(self, prefix: str) -> None:
        await asyncio.gather(*(self._wipe_in(place, prefix) for place in self._partitions))

    async def _wipe_in(self, partition: int, prefix: str) -> None:
        slot, values = self._keyspace.slots[partition], self._keyspace.values(partition)
        if not prefix:
            await self._lanes.call(slot, "UNLINK", values)
            return
        names = await self._names(partition, prefix)
        for start in range(0, len(names), _AT_ONCE):
            await self._lanes.call(slot, "HDEL", values, *names[start : start + _AT_ONCE])

    async def _names(self, partition: int, prefix: str) -> list[bytes]:
        """Names without values, hence not HSCAN, which would carry every value over."""
        slot, values = self._keyspace.slots[partition], self._keyspace.values(partition)
        names: list[bytes] = await self._lanes.call(slot, "HKEYS", values, repeat=True)
        return [name for name in names if name.startswith(prefix.encode())]

    @property
    def _partitions(self) -> range:
        return range(self._keyspace.partitions)

    def _place(self, key: str) -> tuple[int, str]:
        """Slot and hash of a key: any key may be anywhere, so they are spread by their own hash."""
        partition = shard_number("kv", key, self._keyspace.partitions)
        return self._keyspace.slots[partition], self._keyspace.values(partition)
