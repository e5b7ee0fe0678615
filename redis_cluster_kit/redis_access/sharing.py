"""One attempt for all who need its result: whoever comes while it runs gets what it gets, a failure too.

Without it, callers of a server that does not answer would try one after the other, each for the full time.
Attempts open connections and ask for routes; they never run a caller's command.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from redis_cluster_kit.errors import PersistenceFailedError

from .failures import closed

T = TypeVar("T")


class SharedAttempt(Generic[T]):
    """`known` says what is there already; `attempt` finds it, and keeps it where `known` looks."""

    def __init__(self, known: Callable[[], T | None], attempt: Callable[[], Awaitable[T]]) -> None:
        self.is_closed = False
        self._known = known
        self._attempt = attempt
        self._turn = asyncio.Lock()
        self._limit: asyncio.Timeout | None = None
        self._failures = 0
        self._failure: PersistenceFailedError | None = None

    async def get(self) -> T:
        """Return what is known, or the result of an attempt; a cancelled one is taken up by the next."""
        failures = self._failures
        async with self._turn:
            known = self._known()
            if known is not None:
                return known
            if self._failure is not None and self._failures != failures:
                raise copy.copy(self._failure)  # each caller adds its own traceback
            try:
                return await self._try()
            except PersistenceFailedError as error:
                self._failures += 1
                self._failure = error
                raise

    def close(self) -> None:
        """End the attempt that runs, and refuse all others."""
        self.is_closed = True
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())

    async def _try(self) -> T:
        if self.is_closed:
            raise closed()
        try:
            async with asyncio.timeout(None) as self._limit:
                return await self._attempt()
        except TimeoutError as error:
            raise closed() from error
        finally:
            self._limit = None
