"""Resolving deferreds from outside, and waking who waits for them, also when whoever resolved one has died.

First the database has it, then the waiter is woken, then that is noted. Each step may be the last: any runner
finds what was resolved and not noted, and wakes again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta

import anyio

from redis_cluster_kit.codec import encode
from redis_cluster_kit.errors import KitError, PayloadTooLargeError, PersistenceFailedError
from redis_cluster_kit.settings import DurableSettings
from redis_cluster_kit.storage import Deferreds, Resolution, Waiting

from .counters import DurableCounters
from .tokens import DeferredTokens

logger = logging.getLogger(__name__)

_AGE = timedelta(seconds=2)
_MOST = 100
_MS = timedelta(milliseconds=1)
_LONGEST_TEXT = 2000

Wake = Callable[[Waiting], Awaitable[bool]]
"""Wakes an execution; False: it runs at the moment, and may not have seen what came."""

IsAlive = Callable[[Waiting], Awaitable[bool]]
"""Whether an execution may still run, and so wait for something."""


class Resolver:
    """Resolves the deferreds of one cluster."""

    def __init__(
        self,
        deferreds: Deferreds,
        tokens: DeferredTokens,
        wake: Wake,
        is_alive: IsAlive,
        settings: DurableSettings,
        counters: DurableCounters,
        *,
        timeout: float,
    ) -> None:
        self._deferreds = deferreds
        self._tokens = tokens
        self._wake = wake
        self._is_alive = is_alive
        self._settings = settings
        self._counters = counters
        self._timeout = timeout

    async def complete(self, token: str, value: object) -> bool:
        """Resolve by a value; False: it was resolved before, or what waited for it has ended."""
        try:
            encoded = encode(value, limit=self._settings.result_limit)
        except PayloadTooLargeError as error:
            raise PayloadTooLargeError(
                size=error.size, limit=error.limit, detail="the value of a deferred"
            ) from error
        return await self._resolve(token, Resolution(encoded, None))

    async def fail(self, token: str, text: str) -> bool:
        """The same by a failure."""
        return await self._resolve(token, Resolution(None, str(text)[:_LONGEST_TEXT]))

    async def _resolve(self, token: str, resolution: Resolution) -> bool:
        place = self._tokens.read(token)
        waiting = Waiting(place.subject, place.execution, place.shard)
        if not await self._may_wait(waiting):
            return False  # with it went the memory of who resolved it
        is_first = await self._deferreds.resolve(place, resolution, timeout=self._timeout)
        self._counters.deferreds_resolved += is_first
        try:
            if await self._wake(waiting):
                await self._deferreds.woken([waiting[:2]], timeout=self._timeout)
        except PersistenceFailedError as error:
            logger.warning("a deferred is resolved, and its waiter is woken later: %s", error)
        return is_first

    async def _may_wait(self, waiting: Waiting) -> bool:
        try:
            return await self._is_alive(waiting)
        except PersistenceFailedError as error:
            logger.warning("a deferred is resolved without knowing whether anybody waits for it: %s", error)
            return True

    async def watch(self) -> None:
        """Wake those whose wake-up was lost, for ever."""
        pause = self._settings.wake_poll.total_seconds()
        while True:
            await anyio.sleep(pause * random.uniform(0.75, 1.25))
            try:
                await self.look()
            except KitError as error:
                logger.warning("waiters of deferreds are not looked for: %s", error)

    async def look(self, *, age: timedelta = _AGE) -> int:
        """Wake those whose wake-up was lost once; return how many there were."""
        found = await self._deferreds.unwoken(age_ms=age // _MS, most=_MOST, timeout=self._timeout)
        woken = [waiting[:2] for waiting in found if await self._wake(waiting)]
        if woken:
            await self._deferreds.woken(woken, timeout=self._timeout)
            self._counters.deferreds_rescued += len(woken)
        return len(woken)
