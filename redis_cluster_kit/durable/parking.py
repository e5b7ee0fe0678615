"""Finding out whether what came out of a handler means that its turn waits: alone, or in a group."""

from __future__ import annotations

import asyncio

from redis_cluster_kit.entity import Parked

__all__ = ["parked_in"]


def parked_in(error: BaseException) -> Parked | None:
    """Return the wait that ended a turn; None if anything else came out of it, cancellations apart."""
    if isinstance(error, Parked):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    found: list[Parked] = []
    for part in error.exceptions:  # pyright: ignore[reportUnknownVariableType]
        parked = parked_in(part)  # pyright: ignore[reportUnknownArgumentType]
        if parked is not None:
            found.append(parked)
        elif not isinstance(part, asyncio.CancelledError):
            return None
    return min(found, key=lambda parked: parked.due_ms, default=None)
