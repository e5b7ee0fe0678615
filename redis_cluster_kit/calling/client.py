"""The caller's side of a message: makes it, puts it into its mailbox, waits for the reply.

A message keeps its id over every repeat, so repeating is safe until `not_after`; what became of it is then
unknown. Inside a turn sends are staged: they leave with the commit.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.codec import check_size
from redis_cluster_kit.delivery import (
    MOST_SENDS,
    NO_CHECK,
    Lookup,
    Mailboxes,
    OutboxItem,
    Parcel,
    Put,
    Replies,
    check_of,
    keyed_id,
    open_reply,
    seal_item,
)
from redis_cluster_kit.entity import (
    DEFAULT,
    CallOptions,
    Default,
    EntityDefinition,
    RpcDefinition,
    Turn,
    current_turn,
)
from redis_cluster_kit.envelope import Envelope, seal_envelope
from redis_cluster_kit.errors import (
    CallCycleError,
    Execution,
    MailboxFullError,
    MalformedMessageError,
    PersistenceFailedError,
    SendTimeoutError,
    ShuttingDownError,
    UnknownError,
)
from redis_cluster_kit.identity import EntityAddress, MessageIds, ShardId, public_message_id
from redis_cluster_kit.settings import Settings
from redis_cluster_kit.telemetry import TRACING, outgoing_trace

_FIRST_LOOK, _LONGEST_LOOK = 0.25, 2.0
_FIRST_POLL, _LONGEST_POLL = 0.005, 0.25
_NO_ARGUMENTS = b"\x80"


class Target(NamedTuple):
    """An entity: where it is, and what it can do."""

    definition: EntityDefinition
    address: EntityAddress

    @property
    def member(self) -> str:
        """The entity as shards name it."""
        return f"{self.address.type}:{self.address.id}"


class Call(NamedTuple):
    """One call before it is made."""

    target: Target
    rpc: RpcDefinition
    arguments: bytes
    options: CallOptions


@dataclass(slots=True)
class Counters:
    """What this caller did, for metrics."""

    sends: int = 0
    asks: int = 0
    full: int = 0
    timeouts: int = 0
    lookups: int = 0


class Caller:
    """Makes calls for one runner."""

    def __init__(
        self,
        mailboxes: Mailboxes,
        replies: Replies,
        clock: Clock,
        ids: MessageIds,
        settings: Settings,
        is_closing: Callable[[], bool],
    ) -> None:
        self.mailboxes = mailboxes
        self.counters = Counters()
        self._replies = replies
        self._clock = clock
        self._ids = ids
        self._settings = settings
        self._limit = settings.mailbox.payload_limit
        self._depth = settings.mailbox.max_depth
        self._is_closing = is_closing
        self._reply_to = str(replies.place)

    # What proxies use

    def call(
        self,
        target: Target,
        rpc: RpcDefinition,
        options: CallOptions,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Call:
        """Bind and encode the arguments; everything a sender can get wrong is refused here."""
        arguments = (
            rpc.arguments.encode(args, kwargs, limit=self._limit, max_depth=self._depth)
            if args or kwargs or rpc.required
            else _NO_ARGUMENTS
        )
        return Call(target, rpc, arguments, options)

    async def ask(self, call: Call) -> Any:
        """Send and wait for the answer; see API errors: `SendTimeoutError`, `MailboxFullError`, …"""
        if TRACING.tracer is None:
            return await self._ask(call)
        with self._span(call):
            return await self._ask(call)

    async def tell(self, call: Call) -> MessageReceipt:
        """Send; return when the message is safe in its mailbox. Inside a turn it leaves with the commit."""
        if TRACING.tracer is None:
            return await self._tell(call)
        with self._span(call):
            return await self._tell(call)

    def _span(self, call: Call) -> AbstractContextManager[object]:
        address = call.target.address
        return TRACING.sending(
            "cluster.send",
            shard=address.shard,
            runner_id=self._replies.place.runner_id,
            entity_type=address.type,
            entity_id=address.id,
            rpc=call.rpc.name,
        )

    async def _ask(self, call: Call) -> Any:
        turn = current_turn()
        member = str(call.target.address)
        if turn is not None:
            if member in turn.chain:
                raise CallCycleError(entity_id=call.target.address.id, chain=(*turn.chain, member))
            await turn.before_wait()
        self.counters.asks += 1
        timeout = self._timeout(call.options.timeout)
        parcel = self._parcel(call, turn, timeout=timeout, is_ask=True)
        reply = await self._exchange(call, parcel, timeout)
        return open_reply(reply, call.rpc.result, dict(call.rpc.raises))

    async def _tell(self, call: Call) -> MessageReceipt:
        self.counters.sends += 1
        turn = current_turn()
        if turn is not None:
            return self._stage(call, turn)
        parcel = self._parcel(call, None, timeout=None, is_ask=False)
        self._judge(call, await self._put(call, parcel, self._not_after(parcel)))
        return self._receipt(call, parcel, patience=0.0)

    # Making

    def _parcel(self, call: Call, turn: Turn | None, *, timeout: float | None, is_ask: bool) -> Parcel:
        if self._is_closing() and turn is None:
            raise ShuttingDownError(entity_id=call.target.address.id)
        definition, address = call.target
        options = call.options
        due = self._due(options)
        deadline = None
        if is_ask and timeout is not None:
            deadline = (self._clock.now_ms() if due is None else due) + round(timeout * 1000)
        envelope = Envelope(
            rpc=call.rpc.name,
            args=msgspec.Raw(call.arguments),
            reply_to=self._reply_to if is_ask else None,
            deadline=deadline,
            chain=turn.chain if turn is not None and is_ask else (),
            trace=outgoing_trace({} if turn is None else turn.trace),
        )
        message = seal_envelope(envelope, limit=self._limit + 4096, max_depth=self._depth)
        check_size(call.arguments, self._limit)
        member = call.target.member
        key = options.idempotency_key
        return Parcel(
            group=address.shard.group,
            number=address.shard.number,
            member=member,
            id=self._ids.next() if key is None else keyed_id(self.mailboxes.keyspace.namespace, member, key),
            message=message,
            kind="g" if key is None else "k",
            check=NO_CHECK if key is None else check_of(call.rpc.name, call.arguments),
            capacity=definition.capacity or self._settings.mailbox.capacity,
            is_nudged_always=definition.concurrency > 1,
            due=due,
        )

    def _due(self, options: CallOptions) -> int | None:
        if options.delay is not None:
            due = self._clock.now_ms() + options.delay // timedelta(milliseconds=1)
        elif options.deliver_at is not None:
            due = round(options.deliver_at.timestamp() * 1000)
        else:
            return None
        return due if due > self._clock.now_ms() else None

    def _not_after(self, parcel: Parcel) -> int:
        return self._clock.server_ms() + self.mailboxes.windows[parcel.kind]

    def _timeout(self, given: float | timedelta | Default | None) -> float | None:
        if given is DEFAULT:
            return self._settings.entities.ask_timeout.total_seconds()
        if isinstance(given, timedelta):
            return given.total_seconds()
        assert not isinstance(given, Default)
        return given

    # Sending

    def _stage(self, call: Call, turn: Turn) -> MessageReceipt:
        if len(turn.staged) >= MOST_SENDS:
            raise MailboxFullError(
                entity_id=call.target.address.id,
                capacity=MOST_SENDS,
                detail="that is how many messages one turn may send",
            )
        parcel = self._parcel(call, turn, timeout=None, is_ask=False)
        if parcel.kind == "g":  # a key is remembered as a key, whoever uses it
            parcel = msgspec.structs.replace(parcel, kind="r")
        turn.staged.append(seal_item(OutboxItem(f"{turn.address.type}:{turn.address.id}", parcel)))
        return self._receipt(call, parcel, patience=None)

    async def _put(self, call: Call, parcel: Parcel, not_after: int) -> Put:
        durability = call.options.durability
        try:
            if durability is None:
                return await self.mailboxes.put(parcel, not_after)
            return await self.mailboxes.put_replicated(parcel, not_after, durability.replicas)
        except PersistenceFailedError as error:
            if error.execution is not Execution.UNKNOWN:
                raise
            raise UnknownError(
                entity_id=call.target.address.id,
                detail=f"message {parcel.id} may have been taken: {error.detail}",
                cause=error,
            ) from error

    def _judge(self, call: Call, put: Put) -> None:
        """Raise what a refusal means for the sender."""
        entity_id = call.target.address.id
        if put.word == "full":
            self.counters.full += 1
            raise MailboxFullError(
                entity_id=entity_id,
                capacity=call.target.definition.capacity or self._settings.mailbox.capacity,
            )
        if put.word == "conflict":
            raise MalformedMessageError(
                entity_id=entity_id,
                detail=f"idempotency key {call.options.idempotency_key!r} stands for a call of another rpc "
                "or with other arguments",
            )
        if put.word == "late":
            raise UnknownError(
                entity_id=entity_id, detail="it was repeated for longer than its markers are sure to be kept"
            )

    # Waiting

    async def _exchange(self, call: Call, parcel: Parcel, timeout: float | None) -> bytes:
        """Put the message and wait for its reply; look it up, and put it again, while nothing is heard."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        if parcel.due is not None:
            begin += (parcel.due - self._clock.now_ms()) / 1000
        deadline = None if timeout is None else begin + timeout
        not_after = self._not_after(parcel)
        known = "not sent yet"
        pause = _FIRST_LOOK
        future = self._replies.expect(parcel.id)
        try:
            put = await self._first_put(call, parcel, not_after, deadline)
            if put.word == "answered":
                return put.reply
            known = "in its mailbox" if put.word != "scheduled" else "scheduled"
            while True:
                reply = await _within(
                    future, pause if deadline is None else min(pause, deadline - loop.time())
                )
                if reply is not None:
                    return reply
                if deadline is not None and loop.time() >= deadline:
                    self.counters.timeouts += 1
                    raise SendTimeoutError(
                        entity_id=call.target.address.id, timeout=timeout, last_answer=known
                    )
                future = self._renewed(parcel.id, future)
                found = await self._look(parcel, deadline)
                if found is not None and found.word in ("answered", "dead"):
                    return found.reply
                if found is not None:
                    known = _in_words(found)
                if found is not None and found.word == "unknown":
                    again = await self._put(call, parcel, not_after)
                    if again.word == "answered":
                        return again.reply
                    self._judge(call, again)
                pause = min(pause * 2, _LONGEST_LOOK)
        finally:
            self._replies.forget(parcel.id, future)

    async def _first_put(self, call: Call, parcel: Parcel, not_after: int, deadline: float | None) -> Put:
        if deadline is None:
            put = await self._put(call, parcel, not_after)
        else:
            try:
                async with asyncio.timeout_at(deadline):
                    put = await self._put(call, parcel, not_after)
            except TimeoutError:
                self.counters.timeouts += 1
                raise SendTimeoutError(
                    entity_id=call.target.address.id,
                    timeout=self._timeout(call.options.timeout),
                    last_answer="sent, and no word from its mailbox",
                ) from None
        self._judge(call, put)
        return put

    def _renewed(self, id: str, future: asyncio.Future[bytes]) -> asyncio.Future[bytes]:
        """Listen anew before looking: a reply that comes meanwhile is heard by one of the two."""
        self._replies.forget(id, future)
        return self._replies.expect(id)

    async def _look(self, parcel: Parcel, deadline: float | None) -> Lookup | None:
        self.counters.lookups += 1
        try:
            async with asyncio.timeout_at(deadline):
                return await self.mailboxes.lookup(parcel.shard, parcel.member, parcel.id)
        except (PersistenceFailedError, TimeoutError):
            return None

    def _receipt(self, call: Call, parcel: Parcel, *, patience: float | None) -> MessageReceipt:
        return MessageReceipt(
            self,
            parcel.shard,
            parcel.member,
            parcel.id,
            result=call.rpc.result,
            raises=call.rpc.raises,
            patience=patience,
        )

    async def result_of(self, receipt: MessageReceipt, timeout: float | timedelta | Default | None) -> Any:
        """Look a message up until it is answered."""
        limit = self._timeout(timeout)
        loop = asyncio.get_running_loop()
        deadline = None if limit is None else loop.time() + limit
        pause, known = _FIRST_POLL, "not looked up yet"
        patience = math.inf if receipt.patience is None else loop.time() + receipt.patience
        while True:
            try:
                found = await self.mailboxes.lookup(receipt.shard, receipt.member, receipt.id)
            except PersistenceFailedError as error:
                if not error.is_retryable:
                    raise
                known = error.detail
            else:
                known = _in_words(found)
                if found.word in ("answered", "dead"):
                    return open_reply(found.reply, receipt.result_type, dict(receipt.raises))
                if found.word != "unknown":
                    patience = 0.0
                elif loop.time() >= patience:
                    raise UnknownError(
                        entity_id=receipt.entity_id,
                        detail=f"message {receipt.id} is not remembered: it is too old, or was withdrawn",
                    )
            if deadline is not None and loop.time() + pause >= deadline:
                self.counters.timeouts += 1
                raise SendTimeoutError(entity_id=receipt.entity_id, timeout=limit, last_answer=known)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_POLL)


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
        return await self._caller.result_of(self, timeout)


async def _within(future: asyncio.Future[bytes], seconds: float) -> bytes | None:
    """Wait for a reply without the cost of a timeout scope; None: none came."""
    loop = asyncio.get_running_loop()

    def give_up() -> None:
        if not future.done():
            future.set_result(b"")

    timer = loop.call_later(max(0.0, seconds), give_up)
    try:
        return await future or None
    finally:
        timer.cancel()


def _in_words(found: Lookup) -> str:
    if found.word == "taken":
        return f"taken by {found.runner_id or 'a runner'} at attempt {found.attempt}"
    return {"unknown": "nobody knows it", "waiting": "waiting in its mailbox"}.get(found.word, found.word)
