"""A runner's inbox: best-effort nudges through a short stream for each partition, and who hears them.

What is lost here costs time, never a shard or a message: everybody also looks by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

import anyio

from redis_cluster_kit.errors import PersistenceFailedError
from redis_cluster_kit.redis_access import Keyspace, Lanes, Script

logger = logging.getLogger(__name__)

KEEP = Script.load("inbox/keep")
_LENGTH = 10_000
_BATCH = 1_000
_TRIM_AFTER = 1024 * 1024
"""Bytes that were read and lie there still: a stream bounded by their number alone could hold gigabytes."""

Handler = Callable[[list[bytes]], None]
"""Gets the fields of one nudge, names and values in turn; the first pair says what it is about."""


class Inbox:
    """One runner's inbox; and the way into the others'.

    `readers`: one for all partitions, or on a Cluster, where one command reads one slot, one for each.
    """

    def __init__(
        self,
        commands: Lanes,
        readers: Sequence[Lanes],
        keyspace: Keyspace,
        runner_id: str,
        *,
        ttl: timedelta,
        block: timedelta,
        partitions: Sequence[int],
    ) -> None:
        self._commands = commands
        self._keyspace = keyspace
        self._runner_id = runner_id
        self._ttl = ttl.total_seconds()
        self._block_ms = block // timedelta(milliseconds=1)
        self._partitions = tuple(partitions)
        self._readers = readers
        self._seen = {self._key(partition).encode(): b"0-0" for partition in partitions}
        """The newest entry read of each stream."""
        self._lying = dict.fromkeys(self._seen, 0)
        """Bytes of what was read of each since it was trimmed."""
        self.handlers: dict[bytes, Handler] = {}
        """Who hears what, by the nudge's kind; what nobody hears is dropped."""
        self.trouble = ""
        """Why no nudges arrive at the moment."""

    async def keep(self) -> None:
        """Make the inbox, or prolong it."""
        await asyncio.gather(*(self._keep(partition) for partition in self._partitions))

    async def _keep(self, partition: int) -> None:
        key = self._key(partition)
        kept = await KEEP(
            self._commands,
            self._keyspace.slots[partition],
            ttl=round(self._ttl * 3000),
            each=[{"inbox": key}],
        )
        if kept.each[0].word == "made":
            self._seen[key.encode()] = b"0-0"  # the server that lost it may count from an earlier time

    async def nudge(self, runner_ids: Iterable[str], about: str) -> None:
        """Wake runners; those without an inbox are left alone."""
        for runner_id in runner_ids:
            await self.post(runner_id, 0, "k", about)

    async def post(self, runner_id: str, partition: int, *fields: str | bytes) -> None:
        """Put fields into one partition's inbox of a runner, if it has one."""
        await self._commands.call(
            self._keyspace.slots[partition],
            *("XADD", self._keyspace.inbox(runner_id, partition), "NOMKSTREAM", "MAXLEN", "~", _LENGTH, "*"),
            *fields,
            repeat=True,
        )

    async def live(self) -> None:
        """Keep the inbox and hand out what arrives, for ever."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._prolong)
            if len(self._readers) == 1:
                tasks.start_soon(self._read, self._readers[0], self._partitions)
                return
            for reader, partition in zip(self._readers, self._partitions, strict=True):
                tasks.start_soon(self._read, reader, (partition,))

    async def remove(self) -> None:
        """Take the inbox away; nudges to it go nowhere from then on."""
        try:
            for partition in self._partitions:
                await self._commands.call(
                    self._keyspace.slots[partition], "DEL", self._key(partition), repeat=True
                )
        except PersistenceFailedError as error:
            logger.warning("the inbox was not removed, it expires by itself: %s", error)

    def _key(self, partition: int) -> str:
        return self._keyspace.inbox(self._runner_id, partition)

    async def _prolong(self) -> None:
        while True:
            await anyio.sleep(self._ttl / 3)
            try:
                await self.keep()
            except PersistenceFailedError as error:
                self.trouble = str(error)

    async def _read(self, reader: Lanes, partitions: Sequence[int]) -> None:
        keys = {self._key(partition).encode(): self._keyspace.slots[partition] for partition in partitions}
        slot = self._keyspace.slots[partitions[0]]
        while True:
            try:
                reply = await reader.call(
                    slot,
                    *("XREAD", "COUNT", _BATCH, "BLOCK", self._block_ms),
                    *(b"STREAMS", *keys),
                    *(self._seen[key] for key in keys),
                    repeat=True,
                )
            except PersistenceFailedError as error:
                self.trouble = str(error)
                await anyio.sleep(0.1)
                continue
            self.trouble = ""
            for key, entries in reply or ():
                self._seen[key] = entries[-1][0]
                for _, fields in entries:
                    self._lying[key] += len(fields[-1])
                    self._hand_out(fields)
                if self._lying[key] >= _TRIM_AFTER:
                    self._lying[key] = 0
                    self._commands.send(keys[key], "XTRIM", key, "MINID", self._seen[key])

    def _hand_out(self, fields: list[bytes]) -> None:
        handler = self.handlers.get(fields[1])
        if handler is not None:
            try:
                handler(fields)
            except Exception:
                logger.exception("a nudge of kind %r was not understood", fields[1])
