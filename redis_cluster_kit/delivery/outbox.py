"""The relay of one shard: delivers what its entities sent, in order for each sender and target.

Messages came into the outbox with the commit of the turn that sent them, under ids fixed then; so a relay
that repeats itself, or its successor's, is stopped by the target's markers.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import anyio
import msgspec
from anyio.abc import TaskGroup

from redis_cluster_kit.codec import decode, encode
from redis_cluster_kit.errors import MalformedMessageError, PersistenceFailedError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.redis_access import Script

from .mailbox import Mailboxes, refuse_fenced
from .parcel import HeldFence, Parcel

logger = logging.getLogger(__name__)

REMOVE = Script.load("outbox/remove")

CAPACITY = 10_000
"""Messages an outbox holds at the most; a turn that would exceed it fails."""
MOST_SENDS = 128
"""Messages one turn may send."""
_BATCH = 500
_IN_HAND = 2_000
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0


class OutboxItem(msgspec.Struct, array_like=True, frozen=True):
    """What an outbox stores. Append fields only."""

    sender: str
    """The sending entity, as `type:id`."""
    parcel: Parcel


def seal_item(item: OutboxItem) -> bytes:
    """Return the stored form."""
    return encode(item, limit=None)


class _Sent(NamedTuple):
    entry: str
    parcel: Parcel


_Line = tuple[str, str, int, str]
"""Sender and target: messages of one line are delivered one after the other."""


class Relay:
    """Delivers one shard's outbox while the shard is owned. `wake()` after a commit with sends."""

    def __init__(
        self, mailboxes: Mailboxes, shard: ShardId, fence: HeldFence, not_after: Callable[[], int]
    ) -> None:
        self._mailboxes = mailboxes
        self._shard = shard
        self._fence = fence
        self._not_after = not_after
        """Server milliseconds at which our lease has ended: later deliveries are the next owner's."""
        self._keys = mailboxes.keyspace.of(shard)
        self._lines: dict[_Line, deque[_Sent]] = {}
        self._in_hand = 0
        self._is_cut_short = False
        self._last = "-"
        self._news = asyncio.Event()
        self._delivered: list[str] = []
        self._removal = asyncio.Event()

    def wake(self) -> None:
        """Look into the outbox: something was sent."""
        self._news.set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in hand."""
        return not self._in_hand and not self._news.is_set()

    async def run(self) -> None:
        """Deliver for ever; `FencedError` if the shard is not ours any more."""
        self._news.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._remove)
            while True:
                await self._news.wait()
                self._news.clear()
                try:
                    await self._read(tasks)
                except PersistenceFailedError as error:
                    logger.warning("the outbox of shard %s cannot be read: %s", self._shard, error)
                    await anyio.sleep(0.2)
                    self._news.set()

    async def _read(self, tasks: TaskGroup) -> None:
        while True:
            self._is_cut_short = self._in_hand >= _IN_HAND
            if self._is_cut_short:
                return  # the rest is read when some of this is delivered
            entries = await self._mailboxes.lanes.call(
                self._keys.slot, "XRANGE", self._keys.outbox, self._last, "+", "COUNT", _BATCH, repeat=True
            )
            for entry, fields in entries:
                self._last = f"({entry.decode()}"
                self._line_up(tasks, entry.decode(), fields[1])
            if len(entries) < _BATCH:
                return

    def _line_up(self, tasks: TaskGroup, entry: str, data: bytes) -> None:
        self._in_hand += 1
        try:
            item = decode(data, OutboxItem)
        except MalformedMessageError:
            logger.exception("outbox entry %s of shard %s cannot be read and is dropped", entry, self._shard)
            self._done(entry)
            return
        parcel = item.parcel
        line = (item.sender, parcel.group, parcel.number, parcel.member)
        waiting = self._lines.get(line)
        if waiting is not None:
            waiting.append(_Sent(entry, parcel))
            return
        self._lines[line] = deque([_Sent(entry, parcel)])
        tasks.start_soon(self._deliver, line)

    async def _deliver(self, line: _Line) -> None:
        waiting = self._lines[line]
        pause = _FIRST_PAUSE
        while waiting:
            sent = waiting[0]
            word = await self._put(sent.parcel)
            if word in ("full", "late", "failed"):
                await anyio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            if word == "conflict":
                logger.error(
                    "message %s to %s was not sent: its idempotency key stands for another call",
                    sent.parcel.id,
                    sent.parcel.member,
                )
            pause = _FIRST_PAUSE
            waiting.popleft()
            self._done(sent.entry)
        del self._lines[line]

    async def _put(self, parcel: Parcel) -> str:
        try:
            return (await self._mailboxes.put(parcel, self._not_after(), again=True)).word
        except PersistenceFailedError:
            return "failed"

    def _done(self, entry: str) -> None:
        self._delivered.append(entry)
        self._removal.set()

    async def _remove(self) -> None:
        """Remove what was delivered, as much at once as has come together."""
        while True:
            await self._removal.wait()
            self._removal.clear()
            batch, self._delivered = self._delivered[:_BATCH], self._delivered[_BATCH:]
            try:
                outcome = await REMOVE(
                    self._mailboxes.lanes,
                    self._keys.slot,
                    fence=self._keys.fence,
                    outbox=self._keys.outbox,
                    number=self._fence.number,
                    nonce=self._fence.nonce,
                    each=[{"entry": entry} for entry in batch],
                )
            except PersistenceFailedError:
                self._delivered = batch + self._delivered
                await anyio.sleep(0.1)
                self._removal.set()
                continue
            refuse_fenced(outcome, self._shard, self._fence)
            self._in_hand -= len(batch)
            if self._delivered:
                self._removal.set()
            if self._is_cut_short and self._in_hand < _IN_HAND:
                self._news.set()
