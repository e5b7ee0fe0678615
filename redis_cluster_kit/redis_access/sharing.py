"""One attempt for all who need its result: whoever comes while it runs gets what it gets, a failure too.

Without it, callers of a server that does not answer would try one after the other, each for the full time.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from redis_cluster_kit.errors import PersistenceFailedError

T = TypeVar("T")


class SharedAttempt(Generic[T]):
    """`known` says what is there already; `attempt` finds it, and keeps it where `known` looks."""

    def __init__(self, known: Callable[[], T | None], attempt: Callable[[], Awaitable[T]]) -> None:
        self._known = known
        self._attempt = attempt
        self._turn = asyncio.Lock()
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
                return await self._attempt()
            except PersistenceFailedError as error:
                self._failures += 1
                self._failure = error
                raise
