"""An activation with `concurrency` above 1: readonly turns overlap, on an entity without state all do.

Writers run alone. Messages begin in order; they end in any.
"""

from __future__ import annotations

import anyio

from redis_cluster_kit.delivery import Message
from redis_cluster_kit.envelope import Envelope, open_envelope
from redis_cluster_kit.errors import MalformedMessageError

from .activation import EntityActivation
from .in_hand import Leaving


class OverlappingActivation(EntityActivation):
    """Handles up to `concurrency` messages at once."""

    _has_left = False

    async def _serve(self, message: Message | None) -> None:
        slots = anyio.Semaphore(self.definition.concurrency)
        try:
            async with anyio.create_task_group() as tasks:
                while message is not None:
                    self.in_hand[message.entry] = message
                    await slots.acquire()
                    if self._overlaps(message):
                        tasks.start_soon(self._one, message, slots)
                        self._is_marked = True
                    else:
                        await self._alone(message, slots)
                    message = await self.next()
        except BaseExceptionGroup as group:
            raise _first(group) from None
        if self._has_left:
            raise Leaving

    async def _one(self, message: Message, slots: anyio.Semaphore) -> None:
        assert self._turns is not None
        try:
            await self.handle(message, claims=False, alone=False)
            del self.in_hand[message.entry]
        except Leaving:
            self._has_left = True  # the others go on to their end
        finally:
            slots.release()
            if self._parked is not None and not self.in_hand:
                self.around.idle(self)

    async def _alone(self, message: Message, slots: anyio.Semaphore) -> None:
        """Wait until nothing else runs, then run."""
        others = self.definition.concurrency - 1
        for _ in range(others):
            await slots.acquire()
        try:
            await self.handle(message, claims=False)
            del self.in_hand[message.entry]
            self._is_marked = True
        finally:
            for _ in range(others + 1):
                slots.release()

    def _overlaps(self, message: Message) -> bool:
        if self.definition.state is None:
            return True
        try:
            envelope = open_envelope(message.content)
        except MalformedMessageError:
            return False
        rpc = self.definition.rpcs.get(envelope.rpc) if isinstance(envelope, Envelope) else None
        return rpc is not None and rpc.readonly


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
