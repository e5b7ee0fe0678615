"""Batches: what one turn of the event loop calls of one script, for one slot, leaves as one command.

A script costs the server about as much to begin as a short one costs to run, and each command costs both
sides a reply to read. A call that is alone goes as it is. Whatever happens to a batch as a whole (a lost
connection, a redirection, a script nobody knows) is for each of its calls to get over by itself.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from redis_cluster_kit.errors import Execution, PersistenceFailedError

from .connection import ReplyError, pack
from .failures import classify, doubtful
from .lanes import Lanes, Word
from .scripts import Outcome, Script

MOST = 32
"""Calls that go as one: others wait on the server for so long."""
LARGE = 16 * 1024
"""Bytes above which a call goes by itself: beside them a command of its own costs nothing worth saving."""
_UNPACKABLE = (TypeError, ValueError, OverflowError, MemoryError)
"""What packing raises for words that are none, text that is not UTF-8, and more than there is room for."""


class _Call(NamedTuple):
    answer: asyncio.Future[Any]
    slot: int
    keys: tuple[Word, ...]
    arguments: tuple[Word, ...]


class Batches:
    """Calls of one script, which must be safe to repeat."""

    def __init__(self, lanes: Lanes, script: Script) -> None:
        if not script.is_repeatable:
            raise ValueError(f"script {script.name} is not safe to repeat")
        self._lanes = lanes
        self._script = script
        self._batch = script.in_batches()
        self._keys = len(script.header.keys)
        self._by_slot = lanes.url.topology == "cluster"
        self._waiting: dict[int, list[_Call]] = {}
        """By slot on a Cluster, where a command stays within one; elsewhere all together."""
        self._is_planned = False

    async def call(
        self, slot: int, keys: tuple[Word, ...], arguments: tuple[Word, ...], *, size: int = 0
    ) -> Outcome:
        """Run it with keys and arguments in the header's order; `PersistenceFailedError` if it cannot be.

        `size`: the bytes of those arguments that may be large.
        """
        loop = asyncio.get_running_loop()
        call = _Call(loop.create_future(), slot, keys, arguments)
        waiting = self._waiting
        if not self._is_planned:
            self._is_planned = True
            loop.call_soon(self._send)
        place = slot if self._by_slot else 0
        calls = waiting.get(place)
        if size > LARGE:
            if calls is not None:  # they were called before it
                del waiting[place]
                self._send_batch(calls)
            self._send_batch([call])
        elif calls is None:
            waiting[place] = [call]
        else:
            calls.append(call)
            if len(calls) == MOST:  # the server can begin while the rest is still being made
                del waiting[place]
                self._send_batch(calls)
                self._lanes.flush(slot)
        try:
            reply = await call.answer
        except PersistenceFailedError as error:
            return await self._alone(slot, keys, arguments, may_have_run=error.execution is Execution.UNKNOWN)
        if reply.__class__ is not list:  # an error reply, or there is no connection at the moment
            unknown = (
                isinstance(reply, ReplyError) and classify(reply).to_error().execution is Execution.UNKNOWN
            )
            return await self._alone(slot, keys, arguments, may_have_run=unknown)
        if reply and not reply[0]:
            raise _stopped(self._script.name, reply[1])
        return self._script.read(reply)

    async def _alone(
        self, slot: int, keys: tuple[Word, ...], arguments: tuple[Word, ...], *, may_have_run: bool
    ) -> Outcome:
        """Call again, by itself, what got no answer of the script."""
        try:
            return await self._script.call_in_order(self._lanes, slot, self._keys, *keys, *arguments)
        except PersistenceFailedError as error:
            raise doubtful(error) if may_have_run else error from error.cause

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._is_planned = False
        for calls in waiting.values():
            self._send_batch(calls)

    def _send_batch(self, calls: list[_Call]) -> None:
        if len(calls) == 1:
            self._send_one(calls[0])
            return
        try:
            _Batch(self._lanes, calls[0].slot, self._batch, calls).send()
        except _UNPACKABLE:
            for call in calls:
                self._send_one(call)

    def _send_one(self, call: _Call) -> None:
        answer, slot, keys, arguments = call
        try:
            packed = pack(("EVALSHA", self._script.sha, self._keys, *keys, *arguments))
        except _UNPACKABLE as error:
            if not answer.done():
                answer.set_exception(error)
        else:
            if not self._lanes.submit(slot, packed, answer) and not answer.done():
                answer.set_result(None)


class _Batch:
    """Some calls that went as one command: takes the reply in place of a future and hands out its parts."""

    __slots__ = ("_calls", "_knows_script", "_lanes", "_script", "_slot")

    def __init__(self, lanes: Lanes, slot: int, script: Script, calls: list[_Call]) -> None:
        self._lanes = lanes
        self._slot = slot
        self._script = script
        self._calls = calls
        self._knows_script = True

    def send(self) -> None:
        """Send it; where there is no connection at the moment its calls hear None.

        Raises what packing raises, and nothing was sent then.
        """
        keys = [key for call in self._calls for key in call.keys]
        arguments = [argument for call in self._calls for argument in call.arguments]
        head = ("EVALSHA", self._script.sha) if self._knows_script else ("EVAL", self._script.text)
        if not self._lanes.submit(self._slot, pack((*head, len(keys), *keys, *arguments)), self):
            self._tell([None] * len(self._calls))

    def done(self) -> bool:
        """Like a future: whether nobody waits any more. Its calls are asked one by one."""
        return False

    def set_result(self, reply: Any, /) -> None:
        """Take the reply."""
        if isinstance(reply, list) and len(reply) == len(self._calls):
            self._tell(reply)
        elif self._knows_script and isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT"):
            self._knows_script = False
            self.send()
        else:
            self._tell([reply if isinstance(reply, ReplyError) else None] * len(self._calls))

    def set_exception(self, error: BaseException, /) -> None:
        """Take the loss of the connection."""
        for answer, *_ in self._calls:
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # seen: a caller that went away meanwhile is no reason for a warning

    def exception(self) -> BaseException | None:
        """Like a future: nothing is left to see here."""
        return None

    def _tell(self, replies: list[Any]) -> None:
        for (answer, *_), reply in zip(self._calls, replies, strict=True):
            if not answer.done():
                answer.set_result(reply)


def _stopped(name: str, text: Any) -> PersistenceFailedError:
    shown = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    return PersistenceFailedError(
        store="redis",
        execution=Execution.UNKNOWN,
        is_retryable=False,
        detail=f"script {name} stopped at an error: {shown}",
    )
