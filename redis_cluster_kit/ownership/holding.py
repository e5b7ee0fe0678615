"""One owned shard: its fence, its deadline, and the scope its work runs in.

The scope's deadline is the lease's, moved by every renewal: a renewal that does not come stops the work in
time by itself. Getting, renewing and releasing are done elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.errors import FencedError
from redis_cluster_kit.identity import ShardId


class OwnedShard:
    """A shard this runner owns, until its deadline unless it is renewed."""

    def __init__(self, shard: ShardId, fence: int, nonce: str, deadline: float) -> None:
        self.shard = shard
        self.fence = fence
        self.nonce = nonce
        self.deadline = deadline
        self.ending = anyio.Event()
        """Set when the shard is to be handed off: finish what is in progress, begin nothing new."""
        self.loss: str = ""
        """Why it was taken away; empty while it is held or handed off."""
        self._end_by = math.inf
        self._scope = anyio.CancelScope()
        self.extend(deadline)

    def __repr__(self) -> str:
        return f"OwnedShard({self.shard}, fence={self.fence})"

    @property
    def is_held(self) -> bool:
        """Whether a write may be tried: the lease lasts and nobody has taken the shard away."""
        return not self.loss and Clock.boot() < self.deadline

    def check(self) -> None:
        """Raise `FencedError` right before a write if the lease has ended here already."""
        if not self.is_held:
            why = self.loss or "its lease has ended"
            raise FencedError(shard=str(self.shard), fence=self.fence, store="this runner", detail=why)

    def extend(self, deadline: float) -> None:
        """Move the deadline after a renewal."""
        self.deadline = deadline
        # The scope counts on the loop's clock, which stands still while the host is suspended.
        self._scope.deadline = min(anyio.current_time() + (deadline - Clock.boot()), self._end_by)

    def end(self, budget: float) -> None:
        """Begin the hand-off; work that is not done within `budget` seconds is cancelled."""
        if not self.ending.is_set():
            self.ending.set()
            self._end_by = anyio.current_time() + budget
            self.extend(self.deadline)

    def lose(self, reason: str) -> None:
        """Stop the work at once: the shard is somebody else's, or nobody knows."""
        self.loss = self.loss or reason
        self._scope.cancel()

    async def run(self, work: ShardWork) -> bool:
        """Run the work, then stay until the hand-off; return whether it ended cleanly, still held."""
        with self._scope:
            await work(self)
            await self.ending.wait()
        if self._scope.cancelled_caught and not self.ending.is_set():
            self.loss = self.loss or "its lease was not renewed in time"
        return not self._scope.cancelled_caught and self.is_held


ShardWork: TypeAlias = Callable[[OwnedShard], Awaitable[None]]
