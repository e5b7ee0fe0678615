"""Waiting for a fact, never for time: polls a question until its answer is true, with a bound.

The bound is a guard against hanging, not a measurement.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

from redis_cluster_kit.clock import Clock

T = TypeVar("T")


class FactNeverCameError(AssertionError):
    """What a test waited for did not become true within its bound."""

    def __init__(self, what: str, timeout: float, last: object) -> None:
        super().__init__(f"expected {what} within {timeout} s, the last answer was {last!r}")


@overload
async def until(
    fact: Callable[[], Awaitable[T]], *, timeout: float = 30.0, what: str = "", every: float = 0.005
) -> T: ...
@overload
async def until(
    fact: Callable[[], T], *, timeout: float = 30.0, what: str = "", every: float = 0.005
) -> T: ...
async def until(
    fact: Callable[[], Any], *, timeout: float = 30.0, what: str = "", every: float = 0.005
) -> Any:
    """Ask until the answer is true, and return it. An error of the question is raised at once."""
    deadline = Clock.boot() + timeout
    while True:
        answer = fact()
        value = await answer if inspect.isawaitable(answer) else answer
        if value:
            return value
        if Clock.boot() > deadline:
            raise FactNeverCameError(what or getattr(fact, "__qualname__", "a fact"), timeout, value)
        await asyncio.sleep(every)
