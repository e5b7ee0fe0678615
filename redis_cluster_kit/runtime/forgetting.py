"""Journals that are over: deleted in batches, soon after their end, or when their retention has passed.

Deletion is no part of a turn. What a crash left behind goes later, unless something may still run it.
"""

from __future__ import annotations

import logging
import random
from datetime import timedelta

import anyio

from redis_cluster_kit.delivery import Parking
from redis_cluster_kit.durable import DurableCounters
from redis_cluster_kit.errors import KitError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.settings import DurableSettings
from redis_cluster_kit.storage import Waiting

from .execution_stores import ENTITY, SINGLETON, Stores, message_of

logger = logging.getLogger(__name__)

_MOST = 100
_QUEUE = 10_000
_FIRST_CLEAN, _CLEAN_EVERY = 30.0, 600.0


class Forgetting:
    """Deletes the journals of one runner's executions, and those of the whole cluster that nobody deleted."""

    def __init__(
        self, stores: Stores, parking: Parking, settings: DurableSettings, counters: DurableCounters
    ) -> None:
        self._stores = stores
        self._parking = parking
        self._keep_ms = settings.retention // timedelta(milliseconds=1)
        self._counters = counters
        self._ended: dict[tuple[str, str], None] = {}
        self._news = anyio.Event()

    async def watch(self) -> None:
        """Delete what is over, for ever."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._forget_ended)
            tasks.start_soon(self._clean)

    def ended(self, subject: str, execution: str) -> None:
        """Forget an execution soon: its message is committed, or its singleton has gone on."""
        if len(self._ended) < _QUEUE:
            self._ended[subject, execution] = None
            self._news.set()

    async def _forget_ended(self) -> None:
        """Delete what has ended, in batches, for ever."""
        while True:
            await self._news.wait()
            await anyio.sleep(0.2)
            self._news = anyio.Event()
            while self._ended and await self._forget_some():
                pass

    async def _forget_some(self) -> bool:
        batch = list(self._ended)[:_MOST]
        try:
            await self._stores.journal.forget(batch, timeout=self._stores.patience.attempt)
        except KitError as error:
            logger.warning("journals of ended executions are deleted later: %s", error)
            await anyio.sleep(1.0)
            return False
        for place in batch:
            self._ended.pop(place, None)
        self._counters.executions_forgotten += len(batch)
        return True

    async def _clean(self) -> None:
        """Delete what crashes left behind, for ever."""
        pause = _FIRST_CLEAN
        while True:
            await anyio.sleep(pause * random.uniform(0.75, 1.25))
            pause = _CLEAN_EVERY
            try:
                while await self.clean_once() == _MOST:
                    pass
            except KitError as error:
                logger.warning("journals that are over are not deleted yet: %s", error)

    async def clean_once(self) -> int:
        """Look at up to a hundred executions whose retention has passed, and as many deferreds without one.

        Returns how many there were, of that of which there were more.
        """
        stores, keep_ms = self._stores, self._keep_ms
        timeout = stores.patience.attempt
        found = await stores.journal.expired(most=_MOST, timeout=timeout)
        alive = {(subject, id) for subject, id, shard in found if await self._is_alive(subject, id, shard)}
        over = [(subject, id) for subject, id, _ in found if (subject, id) not in alive]
        if alive:
            await stores.journal.keep(alive, keep_ms=keep_ms, timeout=timeout)
        if over:
            await stores.journal.forget(over, timeout=timeout)
            self._counters.executions_forgotten += len(over)
        orphans = await stores.deferreds.forget_orphans(age_ms=keep_ms, most=_MOST, timeout=timeout)
        return max(len(found), orphans)

    async def may_run(self, waiting: Waiting) -> bool:
        """Whether an execution may still run: one that has not ended, one that is set aside."""
        if await self._is_alive(*waiting):
            return True
        if not waiting.subject.startswith(SINGLETON):
            return False
        stores, name = self._stores, waiting.subject.removeprefix(SINGLETON)
        return await stores.singletons.is_aside(name, waiting.execution, timeout=stores.patience.attempt)

    async def _is_alive(self, subject: str, execution: str, shard: ShardId) -> bool:
        """Whether something may still run it: a message that has not ended, the open one of a singleton."""
        if subject.startswith(ENTITY):
            return await self._parking.is_alive(shard, subject.removeprefix(ENTITY), message_of(execution))
        if not subject.startswith(SINGLETON):
            return True
        stores, name = self._stores, subject.removeprefix(SINGLETON)
        return execution == await stores.singletons.open_now(name, timeout=stores.patience.attempt)
