"""The caller's side of a message: makes it, puts it into its mailbox, waits for the reply.

A message keeps its id over every repeat, so repeating is safe until `not_after`; what became of it is then
unknown. Inside a turn sends are staged: they leave with the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import msgspec

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.codec import check_size
from redis_cluster_kit.delivery import (
    MOST_SENDS,
    NO_CHECK,
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
from redis_cluster_kit.identity import EntityAddress, MessageIds
from redis_cluster_kit.settings import Settings
from redis_cluster_kit.telemetry import TRACING, outgoing_trace

from .exchange import Exchange, TimeIsUp, withdrawn
from .receipt import MessageReceipt

_T = TypeVar("_T")
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

    def looked_up(self) -> None:
        """Count a lookup."""
        self.lookups += 1


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

    def ask(self, call: Call) -> Coroutine[Any, Any, Any]:
        """Send and wait for the answer; see API errors: `SendTimeoutError`, `MailboxFullError`, …"""
        asked = self._ask(call)
        return asked if TRACING.tracer is None or TRACING.is_idle else self._traced(call, asked)

    def tell(self, call: Call) -> Coroutine[Any, Any, MessageReceipt]:
        """Send; return when the message is safe in its mailbox. Inside a turn it leaves with the commit."""
        told = self._tell(call)
        return told if TRACING.tracer is None or TRACING.is_idle else self._traced(call, told)

    async def _traced(self, call: Call, made: Coroutine[Any, Any, _T]) -> _T:
        with self._span(call):
            return await made

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
        timeout = self.seconds(call.options.timeout)
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

    def seconds(self, given: float | timedelta | Default | None) -> float | None:
        """Return a timeout in seconds, the settings' own if none was given; None: for ever."""
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

    async def _put(self, call: Call, parcel: Parcel, not_after: int, *, again: bool = False) -> Put:
        durability = call.options.durability
        try:
            if durability is None:
                return await self.mailboxes.put(parcel, not_after, again=again)
            return await self.mailboxes.put_replicated(parcel, not_after, durability.replicas, again=again)
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
        if put.word == "withdrawn":
            raise withdrawn(entity_id)
        if put.word == "late":
            raise UnknownError(
                entity_id=entity_id, detail="it was repeated for longer than its markers are sure to be kept"
            )

    # Waiting

    async def _exchange(self, call: Call, parcel: Parcel, timeout: float | None) -> bytes:
        """Return the reply to an ask."""
        not_after = self._not_after(parcel)

        async def put(*, again: bool) -> Put:
            answer = await self._put(call, parcel, not_after, again=again)
            self._judge(call, answer)
            return answer

        begin = asyncio.get_running_loop().time()
        if parcel.due is not None:
            begin += (parcel.due - self._clock.now_ms()) / 1000
        deadline = None if timeout is None else begin + timeout
        try:
            return await Exchange(
                self.mailboxes, self._replies, parcel, put, deadline, self.counters.looked_up
            ).run()
        except TimeIsUp as error:
            self.counters.timeouts += 1
            raise SendTimeoutError(
                entity_id=call.target.address.id, timeout=timeout, last_answer=error.known
            ) from None

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
