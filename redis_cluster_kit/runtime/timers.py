"""The scheduled messages and wake-ups of one owned shard: sleeps until the next is due, then acts."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING

import anyio

from redis_cluster_kit.delivery import DueMessage
from redis_cluster_kit.errors import PersistenceFailedError

if TYPE_CHECKING:
    from .shard_host import ShardHost

logger = logging.getLogger(__name__)

_RETRY_FULL = 0.1


class Timers:
    """Promotes what is due, in order for each entity."""

    def __init__(self, around: ShardHost) -> None:
        self._around = around
        self._next_ms = math.inf
        self._news = asyncio.Event()
        self._looking = anyio.Lock()
        self._full: set[str] = set()

    def heard(self, due_ms: float) -> None:
        """Take a nudge: a message was scheduled that is now the shard's earliest."""
        self._next_ms = min(self._next_ms, due_ms)
        self._news.set()

    def made_room(self, member: str) -> None:
        """A message has left this entity's mailbox: look at once if that was what others waited for."""
        if member in self._full:
            self._news.set()

    def wake(self) -> None:
        """Look anew: the clock was moved, or a nudge may have been lost."""
        self._news.set()

    async def run(self) -> None:
        """Promote for ever."""
        while True:
            try:
                await self.look()
            except PersistenceFailedError as error:
                logger.warning("the schedule of shard %s cannot be read: %s", self._around.shard, error)
                await anyio.sleep(0.1)
                continue
            pause = self._next_ms / 1000 - self._around.now()
            with anyio.move_on_after(None if math.isinf(pause) else max(0.0005, pause)):
                await self._news.wait()
            self._news.clear()

    async def look(self) -> None:
        """Promote all that is due now."""
        async with self._looking:
            self._full.clear()
            offset = round(self._around.host.clock.offset.total_seconds() * 1000)
            held_up = 0
            while True:
                found = await self._around.scheduled.due(self._around.shard, offset, held_up)
                self._next_ms = math.inf if found.next_ms is None else found.next_ms
                if not found.messages:
                    break
                for message in found.messages:
                    held_up += await self._promote(message) == "full"
            if held_up:
                self._next_ms = min(self._next_ms, (self._around.now() + _RETRY_FULL) * 1000)

    async def _promote(self, due: DueMessage) -> str:
        """Promote one, unless an earlier one of its entity is still held up; wake what is parked."""
        if not due.message:
            return await self._wake(due)
        if due.member in self._full:
            return "full"
        around = self._around
        word = await around.scheduled.promote(around.shard, around.fence, due)
        if word == "full":
            self._full.add(due.member)
        elif word == "promoted":
            around.counters.promoted += 1
            around.activate(due.member)
        return word

    async def _wake(self, due: DueMessage) -> str:
        around = self._around
        word = await around.parking.wake(around.shard, due.member, due.id)
        if word == "woken":
            around.executions.counters.wakes += 1
            around.activate(due.member)
        return word
