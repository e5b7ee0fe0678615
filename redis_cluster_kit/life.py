"""The asyncio task a runner lives in, from joining to leaving, whatever its user's task does meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio


class Life:
    """The runner's own asyncio task: its scopes never mix with the caller's, whatever the caller does."""

    def __init__(self, run: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]) -> None:
        self._run = run
        self._joined = asyncio.Event()
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Return when the runner has joined; raise what kept it from that."""
        self._task = asyncio.create_task(self._live(), name="redis_cluster_kit")
        waiting = asyncio.create_task(self._joined.wait())
        try:
            await asyncio.wait((self._task, waiting), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._abandon()
            raise
        finally:
            waiting.cancel()
        if not self._joined.is_set():
            await self._task

    async def end(self) -> None:
        """Leave in order, even if the caller was cancelled; a cancellation during that cuts it short."""
        assert self._task is not None
        self._over.set()
        try:
            with anyio.CancelScope(shield=True):
                await asyncio.shield(self._task)
        except asyncio.CancelledError:
            await self._abandon()
            raise

    async def _abandon(self) -> None:
        assert self._task is not None
        self._task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait((self._task,))

    async def _live(self) -> None:
        try:
            await self._run(self._stay)
        except BaseExceptionGroup as group:
            raise _only(group) from None

    async def _stay(self) -> None:
        self._joined.set()
        await self._over.wait()


def _only(error: BaseException) -> BaseException:
    """Return what a group of one holds: task groups wrap what passes through them."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
