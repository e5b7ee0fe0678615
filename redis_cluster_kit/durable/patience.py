"""How the database is waited for: in turn, attempt by attempt, and not for ever.

A crowd of executions is no failure of the database: waiting for a turn counts for nothing. What has begun is
brought to its end, also if its caller is cancelled: a hand-off waits this long for it.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.errors import PersistenceFailedError

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Patience:
    """Shared by all executions of a runner; times are in seconds."""

    def __init__(self, *, attempt: float, total: float, at_once: int) -> None:
        self.attempt = attempt
        self._total = total
        self._turns = anyio.Semaphore(at_once)

    async def during(self, attempt: Callable[[float], Awaitable[T]], check: Callable[[], None]) -> T:
        """Repeat what is safe to repeat; `attempt` is given its timeout. `check` raises if it is too late."""
        deadline, pause = 0.0, _FIRST_PAUSE
        while True:
            try:
                async with self._turns:
                    deadline = deadline or Clock.boot() + self._total
                    check()
                    return await self._once(attempt)
            except PersistenceFailedError as error:
                if not error.is_retryable or Clock.boot() >= deadline:
                    raise
            await anyio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(_LONGEST_PAUSE, pause * 2)

    async def _once(self, attempt: Callable[[float], Awaitable[T]]) -> T:
        try:
            with anyio.fail_after(self.attempt, shield=True):
                return await attempt(self.attempt)
        except TimeoutError as error:
            raise PersistenceFailedError(
                store="database", detail=f"no answer within {self.attempt:g} s", cause=error
            ) from error
