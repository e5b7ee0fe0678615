"""Waiting with a message in hand: for a runner that knows it, or for its next attempt.

A hand-off ends the wait, and so does whoever withdraws the message: `reset` and `delete` need no owner, and
tell it nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from redis_cluster_kit.delivery import Message
from redis_cluster_kit.errors import PersistenceFailedError

from .commit import MessageGone

if TYPE_CHECKING:
    from .activation import EntityActivation

LOOK_EVERY = 1.0
_LOOKS = 5
"""Every so many looks Redis is asked although no nudge has come: the mailbox may have stayed empty."""


class Leaving(Exception):  # noqa: N818 - what happened, and nothing to be sorry about
    """The shard is handed off; what is in hand is left to its next owner."""


class LeftParked(Leaving):
    """The message waits durably, and nobody in memory with it."""


class Withdrawal:
    """Whether one message in hand was withdrawn. A nudge says that its mailbox was empty for a moment."""

    def __init__(self, activation: EntityActivation, message: Message) -> None:
        self._activation = activation
        self._message = message
        self._looks = 0

    async def look(self) -> None:
        """Ask Redis, if there is reason to or it was not asked for long; `MessageGone` if it is not there."""
        self._looks += 1
        if not self._activation.is_marked and self._looks % _LOOKS:
            return
        around = self._activation.around
        try:
            found = await around.mailboxes.lookup(around.shard, self._activation.member, self._message.id)
        except PersistenceFailedError:
            return
        if found.word not in ("waiting", "taken"):
            raise MessageGone


async def pause(activation: EntityActivation, message: Message, seconds: float) -> None:
    """Wait so long; `Leaving` at a hand-off, `MessageGone` when the message is withdrawn meanwhile."""
    withdrawal = Withdrawal(activation, message)
    end = anyio.current_time() + seconds
    while (left := end - anyio.current_time()) > 0:
        with anyio.move_on_after(min(left, LOOK_EVERY)):
            await activation.around.ending.wait()
            raise Leaving
        if left > LOOK_EVERY:
            await withdrawal.look()
