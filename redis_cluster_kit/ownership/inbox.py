"""Nudges between runners: best-effort wake-ups through a short stream per runner and partition.

A lost nudge costs a quarter of a second, never a shard: everybody also looks by itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import timedelta

from redis_cluster_kit.redis_access import Keyspace, Lanes, Script

KEEP = Script.load("inbox/keep")
_LENGTH = 1000


class Inbox:
    """One runner's inbox; and the way into the others'."""

    def __init__(
        self,
        commands: Lanes,
        readers: Lanes,
        keyspace: Keyspace,
        runner_id: str,
        *,
        ttl: timedelta,
        block: timedelta,
    ) -> None:
        self._commands = commands
        self._readers = readers
        self._keyspace = keyspace
        self._runner_id = runner_id
        self._ttl_ms = ttl // timedelta(milliseconds=1) * 3
        self._block_ms = block // timedelta(milliseconds=1)

    async def keep(self) -> None:
        """Make the inbox, or prolong it."""
        for partition in self._used():
            await KEEP(
                self._commands,
                self._keyspace.slots[partition],
                ttl=self._ttl_ms,
                each=[{"inbox": self._keyspace.inbox(self._runner_id, partition)}],
            )

    async def nudge(self, runner_ids: Iterable[str], about: str) -> None:
        """Wake runners; those without an inbox are left alone."""
        for runner_id in runner_ids:
            await self._commands.call(
                self._keyspace.home_slot,
                *("XADD", self._keyspace.inbox(runner_id, 0), "NOMKSTREAM", "MAXLEN", "~", _LENGTH, "*"),
                *("k", about),
                repeat=True,
            )

    async def nudges(self) -> AsyncIterator[str]:
        """Yield what nudges are about; ends only by an error or cancellation."""
        key, last = self._keyspace.inbox(self._runner_id, 0), b"$"
        while True:
            reply = await self._readers.call(
                self._keyspace.home_slot,
                *("XREAD", "COUNT", 100, "BLOCK", self._block_ms, "STREAMS", key, last),
                repeat=True,
            )
            for _, entries in reply or ():
                for entry, fields in entries:
                    last = entry
                    yield fields[1].decode()

    async def remove(self) -> None:
        """Take the inbox away; nudges to it go nowhere from then on."""
        for partition in self._used():
            key = self._keyspace.inbox(self._runner_id, partition)
            await self._commands.call(self._keyspace.slots[partition], "DEL", key, repeat=True)

    def _used(self) -> tuple[int, ...]:
        return (0,)
