"""Receipts: what a sender holds of its message, and the wait for its result by looking it up."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from redis_cluster_kit.delivery import open_reply
from redis_cluster_kit.entity import DEFAULT, Default
from redis_cluster_kit.errors import PersistenceFailedError, SendTimeoutError, UnknownError
from redis_cluster_kit.identity import ShardId, public_message_id

from .exchange import in_words, withdrawn

if TYPE_CHECKING:
    from .client import Caller

_FIRST_POLL, _LONGEST_POLL = 0.005, 0.25


class MessageReceipt:
    """A message that is safe in its mailbox, or leaves with the commit of the turn that sent it."""

    __slots__ = ("_caller", "id", "member", "patience", "raises", "result_type", "shard")

    def __init__(
        self,
        caller: Caller,
        shard: ShardId,
        member: str,
        id: str,
        *,
        result: Any,
        raises: Mapping[str, Any],
        patience: float | None = 0.0,
    ) -> None:
        self._caller = caller
        self.shard = shard
        self.member = member
        self.id = id
        self.result_type = result
        self.raises = raises
        self.patience = patience
        """Seconds for which it may be unknown, since it leaves with a commit; None: as long as one waits."""

    def __repr__(self) -> str:
        return f"<receipt {self.message_id}>"

    @property
    def entity_id(self) -> str:
        """The id of the entity it was sent to."""
        return self.member.partition(":")[2]

    @property
    def message_id(self) -> str:
        """Text that can be stored: any pod finds the message by it."""
        type, _, id = self.member.partition(":")
        return public_message_id(self.id, self.shard.group, type, id)

    async def result(self, *, timeout: float | timedelta | Default | None = DEFAULT) -> Any:
        """Wait for the handler's answer; `UnknownError` when it is not remembered any more."""
        seconds = self._caller.seconds(timeout)
        reply = await self._reply(seconds)
        return open_reply(reply, self.result_type, dict(self.raises))

    async def _reply(self, timeout: float | None) -> bytes:
        """Look the message up until it is answered."""
        loop = asyncio.get_running_loop()
        deadline = math.inf if timeout is None else loop.time() + timeout
        patience = math.inf if self.patience is None else loop.time() + self.patience
        pause, known = _FIRST_POLL, "not looked up yet"
        while True:
            try:
                found = await self._caller.mailboxes.lookup(self.shard, self.member, self.id)
            except PersistenceFailedError as error:
                if not error.is_retryable:
                    raise
                known = error.detail
            else:
                known = in_words(found)
                if found.word in ("answered", "dead"):
                    return found.reply
                if found.word == "withdrawn":
                    raise withdrawn(self.entity_id)
                if found.word != "unknown":
                    patience = 0.0
                elif loop.time() >= patience:
                    raise self._forgotten()
            if loop.time() + pause >= deadline:
                self._caller.counters.timeouts += 1
                raise SendTimeoutError(entity_id=self.entity_id, timeout=timeout, last_answer=known)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_POLL)

    def _forgotten(self) -> UnknownError:
        return UnknownError(
            entity_id=self.entity_id,
            detail=f"message {self.id} is not remembered: it is too old, or was withdrawn",
        )
