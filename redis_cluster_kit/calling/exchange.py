"""One ask: put the message, wait for its reply, and look it up while nothing is heard.

Its message keeps its id, so it may be put again where nobody knows it; how far it has got is told when time
runs out. What a refusal means is the caller's to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from redis_cluster_kit.delivery import Lookup, Mailboxes, Parcel, Put, Replies
from redis_cluster_kit.errors import PersistenceFailedError, UnknownError

_FIRST_LOOK, _LONGEST_LOOK = 0.25, 2.0


class TimeIsUp(Exception):  # noqa: N818 - what happened
    """No reply came in time; `known` says how far the message has got."""

    def __init__(self, known: str) -> None:
        super().__init__(known)
        self.known = known


class PutMessage(Protocol):
    """Puts the message; raises what a refusal means."""

    async def __call__(self, *, again: bool) -> Put: ...


class Exchange:
    """Waits for the reply to one message."""

    def __init__(
        self,
        mailboxes: Mailboxes,
        replies: Replies,
        parcel: Parcel,
        put: PutMessage,
        deadline: float | None,
        count_lookup: Callable[[], None],
    ) -> None:
        self._mailboxes = mailboxes
        self._replies = replies
        self._parcel = parcel
        self._put = put
        self._deadline = deadline
        """By the loop's clock; None: wait for ever."""
        self._known = "sent, and no word from its mailbox"
        self._future = replies.expect(parcel.id)
        self._count_lookup = count_lookup

    async def run(self) -> bytes:
        """Return the reply; `TimeIsUp` if there is none at the deadline."""
        try:
            reply = await self._begin()
            pause = _FIRST_LOOK
            while reply is None:
                reply = await self._listen(pause)
                if reply is None:
                    reply = await self._ask_for_it()
                pause = min(pause * 2, _LONGEST_LOOK)
            return reply
        finally:
            self._replies.forget(self._parcel.id, self._future)

    async def _begin(self) -> bytes | None:
        if self._deadline is None:
            put = await self._put(again=False)
        else:
            try:
                async with asyncio.timeout_at(self._deadline):
                    put = await self._put(again=False)
            except TimeoutError:
                raise TimeIsUp(self._known) from None
        self._known = "scheduled" if put.word == "scheduled" else "in its mailbox"
        return put.reply if put.word == "answered" else None

    async def _listen(self, seconds: float) -> bytes | None:
        """Wait for the reply to arrive; None if it has not after so long."""
        if self._deadline is not None:
            seconds = min(seconds, self._deadline - asyncio.get_running_loop().time())
        return await within(self._future, seconds)

    async def _ask_for_it(self) -> bytes | None:
        """Look how far the message has got, and put it again where nobody knows it."""
        if self._deadline is not None and asyncio.get_running_loop().time() >= self._deadline:
            raise TimeIsUp(self._known)
        # Listen anew first: a reply that comes meanwhile is heard by the future or seen by the look.
        self._replies.forget(self._parcel.id, self._future)
        self._future = self._replies.expect(self._parcel.id)
        self._count_lookup()
        try:
            async with asyncio.timeout_at(self._deadline):
                found = await self._mailboxes.lookup(self._parcel.shard, self._parcel.member, self._parcel.id)
                self._known = in_words(found)
                if found.word in ("answered", "dead"):
                    return found.reply
                if found.word == "withdrawn":
                    raise withdrawn(self._parcel.member.partition(":")[2])
                if found.word == "unknown":
                    put = await self._put(again=True)
                    return put.reply if put.word == "answered" else None
        except (PersistenceFailedError, TimeoutError):
            pass  # Redis does not answer: it is asked again until the deadline
        except UnknownError as error:
            if not isinstance(error.cause, PersistenceFailedError):
                raise
        return None


async def within(future: asyncio.Future[bytes], seconds: float) -> bytes | None:
    """Wait for a reply without the cost of a timeout scope; None: none came."""

    def give_up() -> None:
        if not future.done():
            future.set_result(b"")

    timer = asyncio.get_running_loop().call_later(max(0.0, seconds), give_up)
    try:
        return await future or None
    finally:
        timer.cancel()


def withdrawn(entity_id: str) -> UnknownError:
    """Return what whoever waits for a withdrawn message gets."""
    return UnknownError(entity_id=entity_id, detail="it was withdrawn by cancel(), or its entity was reset")


def in_words(found: Lookup) -> str:
    """Say how far a message has got."""
    if found.word == "taken":
        return f"taken by {found.runner_id or 'a runner'} at attempt {found.attempt}"
    return {"unknown": "nobody knows it", "waiting": "waiting in its mailbox"}.get(found.word, found.word)
