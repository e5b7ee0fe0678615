"""How one message becomes a turn: opened, its handler run, committed, or failed and tried again in place.

An activation hands messages in one by one and gets back the next; nothing of a turn that failed is left in
the state that the next one sees.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

import anyio

from redis_cluster_kit.codec import encode
from redis_cluster_kit.delivery import (
    FROM_THE_START,
    DeadRecord,
    MailboxParked,
    Message,
    SavedState,
    declared_reply,
    failed_reply,
    result_reply,
)
from redis_cluster_kit.durable import Execution, parked_in
from redis_cluster_kit.entity import (
    DurableRun,
    Entity,
    Parked,
    RpcDefinition,
    TickEntity,
    Turn,
    enter_context,
    enter_turn,
    leave_context,
    leave_turn,
    make_instance,
)
from redis_cluster_kit.envelope import Envelope, UnknownVersion, open_envelope
from redis_cluster_kit.errors import (
    ClusterError,
    EntityError,
    FencedError,
    HandlerFailedError,
    MailboxFullError,
    MalformedMessageError,
    PersistenceFailedError,
    StepConflictError,
)
from redis_cluster_kit.telemetry import TRACING

from .backoff import pause_after
from .commit import CLAIM_NOTHING, Committed, StateWrite
from .error_texts import error_text, outward, traceback_text
from .execution_stores import execution_of
from .in_hand import Leaving, LeftParked, Withdrawal, pause
from .state import LiveState

if TYPE_CHECKING:
    from .activation import EntityActivation

logger = logging.getLogger(__name__)

MOST_DEATHS = 5
_LONGEST_PAUSE = 60.0


class MustReload(Exception):  # noqa: N818 - what happened, and nothing to be sorry about
    """What is in memory may differ from what is stored: the activation is made anew."""


class CannotSucceed(Exception):  # noqa: N818
    """The message does not fit its rpc, or the entity's state cannot be read: trying again is of no use."""

    def __init__(self, envelope: Envelope, error: ClusterError) -> None:
        super().__init__(str(error))
        self.envelope = envelope
        self.error = error


class TurnRunner:
    """Runs the turns of one activation."""

    def __init__(self, activation: EntityActivation, saved: SavedState) -> None:
        self._activation = activation
        self._around = activation.around
        self._definition = activation.definition
        self._fence = int(self._around.fence.number)
        self._label = str(activation.address)
        self._state = LiveState(activation.definition, saved)
        self._instance: Entity[Any] | None = None
        self._from_start: list[bytes] = []
        """What `on_start` sent; it leaves with the first turn that commits."""
        self._starting = anyio.Lock()

    async def run(self, message: Message, *, after: str | None, alone: bool = True) -> Message | None:
        """Bring one message to its end; what can never succeed is buried."""
        try:
            return await self._run(message, after, alone=alone)
        except CannotSucceed as unfit:
            await self._bury(message, unfit.envelope, unfit.error, unfit.error.detail or str(unfit.error))
            if isinstance(unfit.error, PersistenceFailedError):
                raise MustReload from None  # it may have been mended when the next message comes
            return None

    async def _run(self, message: Message, after: str | None, *, alone: bool) -> Message | None:
        """Bring one message to its end, whatever that is; `after` None: claim nothing with the commit.

        `alone` False: other readonly turns run beside this one, each on a state of its own.
        """
        found = await self._open(message)
        if found is None:
            return None
        envelope, rpc = found
        if message.deaths >= MOST_DEATHS:
            reason = f"its runner died {message.deaths} times while it was handled"
            await self._bury(message, envelope, HandlerFailedError(detail=reason), reason)
            return None
        while True:
            turn = self._turn(message, envelope)
            try:
                if TRACING.tracer is None or TRACING.is_idle:
                    reply, write = await self._attempt(turn, rpc, envelope, alone=alone)
                else:
                    with self._span(turn, rpc):
                        reply, write = await self._attempt(turn, rpc, envelope, alone=alone)
            except BaseException as error:  # noqa: BLE001 - judged there
                failure = await self._judged(turn, message, error)
            else:
                if turn.opened_run is not None:
                    await self._park_if_asked(turn, message)
                done = await self._commit(turn, message, reply, write, after)
                if done is not None:
                    self._answer(message, envelope, reply)
                    if turn.opened_run is not None:
                        self._around.executions.ended_turn(turn)
                    return done.following
                failure = MailboxFullError(
                    entity_id=self._activation.address.id, detail="the shard's outbox is full"
                )
            self._restore(alone=alone)
            if isinstance(failure, StepConflictError):
                raise CannotSucceed(envelope, failure)
            if not await self._failed(message, envelope, failure):
                return None

    async def _judged(self, turn: Turn, message: Message, error: BaseException) -> Exception:
        """Return what a handler has raised as its failure; raise what is none, and park what waits."""
        if isinstance(error, Exception | asyncio.CancelledError):
            return self._failure_of(error)
        parked = parked_in(error)
        if parked is not None and turn.opened_run is not None:
            await self._park(turn, message, parked)
        if isinstance(error, BaseExceptionGroup) and (failures := error.subgroup(Exception)) is not None:
            return self._failure_of(failures)
        raise error

    async def _park_if_asked(self, turn: Turn, message: Message) -> None:
        """A handler that caught the end of its wait changes nothing."""
        parked = cast("Execution", turn.opened_run).parked
        if parked is not None:
            await self._park(turn, message, parked)

    async def _park(self, turn: Turn, message: Message, parked: Parked) -> None:
        """Let the message wait in its place, and leave memory. State and sends of this run are dropped."""
        around, run = self._around, cast("Execution", turn.opened_run)
        if run.parked is None:
            raise Leaving  # it waits in memory, and the shard is handed off
        around.check()
        shard, member = around.shard, self._activation.member
        if not await around.parking.park(shard, around.fence, member, message, due_ms=parked.due_ms):
            raise MustReload
        around.counted_parked(parked.due_ms)
        try:
            # What came between the last look and now has found nothing to wake.
            if await run.is_resolved():
                await around.parking.wake(shard, member, message.id)
        except PersistenceFailedError as error:
            logger.warning("%s is parked, and woken later if need be: %s", self._activation.address, error)
        raise LeftParked

    def _durable_run(self, turn: Turn, message: Message, envelope: Envelope) -> DurableRun:
        around = self._around
        return around.executions.of_turn(
            turn,
            message,
            envelope,
            around.fence,
            parks=self._definition.concurrency == 1,
            ending=around.ending,
            check=around.check,
        )

    def _failure_of(self, error: BaseException) -> Exception:
        """Return what a handler has raised as its failure; raise what is none."""
        if isinstance(error, asyncio.CancelledError):
            return _own_cancellation(error)
        is_ours = isinstance(error, FencedError) and error.shard == str(self._around.shard)
        if is_ours or isinstance(error, MustReload | CannotSucceed) or not isinstance(error, Exception):
            raise error
        return error

    async def stop(self) -> None:
        """Run `on_stop`; what it raises is logged and changes nothing."""
        instance = self._instance
        if instance is None or type(instance).on_stop is Entity.on_stop:
            return
        turn = Turn(self._activation.address, self._around.runner_id, self._fence)
        turn.is_over = True  # there is no commit to send with: what it sends goes out at once
        tokens = enter_context(turn), enter_turn(turn)
        try:
            await instance.on_stop()
        except asyncio.CancelledError as error:
            logger.warning("on_stop of %s: %s", self._activation.address, _own_cancellation(error))
        except Exception:
            logger.exception("on_stop of %s failed", self._activation.address)
        finally:
            leave_turn(turn, tokens[1])
            leave_context(tokens[0])

    # Opening

    async def _open(self, message: Message) -> tuple[Envelope, RpcDefinition] | None:
        """Read a message and find its rpc; None: it was buried, or waits for a runner that knows more."""
        try:
            envelope = open_envelope(message.content, max_depth=self._around.limits.max_depth)
        except MalformedMessageError as error:
            await self._bury(message, None, error, error.detail)
            return None
        name = self._definition.name
        if isinstance(envelope, UnknownVersion):
            await self._around.wait_for_knowledge(
                f"envelope/{envelope.version}", look=Withdrawal(self._activation, message).look
            )
            reason = f"no live runner knows envelopes of version {envelope.version}"
            await self._bury(message, None, MalformedMessageError(detail=reason), reason)
            return None
        rpc = self._definition.rpcs.get(envelope.rpc)
        if rpc is None:
            await self._around.wait_for_knowledge(
                f"{name}/{envelope.rpc}", look=Withdrawal(self._activation, message).look
            )
            reason = f"no live runner knows rpc {envelope.rpc!r} of {name!r}"
            await self._bury(message, envelope, MalformedMessageError(detail=reason), reason)
            return None
        return envelope, rpc

    def _turn(self, message: Message, envelope: Envelope) -> Turn:
        return Turn(
            self._activation.address,
            self._around.runner_id,
            self._fence,
            message_id=message.id,
            attempt=message.attempt,
            chain=(*envelope.chain, self._label),
            trace=envelope.trace,
            before_wait=None if message.is_claimed else lambda: self._note_claim(message),
            open_durable=lambda turn: self._durable_run(turn, message, envelope),
        )

    def _span(self, turn: Turn, rpc: RpcDefinition) -> AbstractContextManager[object]:
        address = turn.address
        is_tick = issubclass(self._definition.entity, TickEntity)  # its type is `cron.` and the cron's name
        return TRACING.handling(
            address.type if is_tick else f"entity.{address.type}.{rpc.name}",
            turn.trace,
            shard=address.shard,
            runner_id=turn.runner_id,
            entity_type=address.type,
            entity_id=address.id,
            message_id=turn.message_id,
            attempt=turn.attempt,
        )

    async def _note_claim(self, message: Message) -> None:
        """Claim what came with a nudge, before its turn waits for anybody."""
        activation = self._activation
        try:
            claimed, _ = await self._around.mailboxes.claim(
                self._around.shard, self._around.fence, activation.member, after=FROM_THE_START
            )
        except MailboxParked:
            claimed = None
        if claimed is None or claimed.entry != message.entry:
            raise MustReload
        message.is_claimed = True

    # Running

    async def _attempt(
        self, turn: Turn, rpc: RpcDefinition, envelope: Envelope, *, alone: bool
    ) -> tuple[bytes, StateWrite | None]:
        """Run the handler; return the reply and what to write; a declared error writes nothing."""
        limits = self._around.limits
        try:
            arguments = rpc.arguments.decode(envelope.args, max_depth=limits.max_depth)
        except MalformedMessageError as error:
            raise CannotSucceed(envelope, error) from error
        context, entered = enter_context(turn), enter_turn(turn)
        try:
            instance = await self._live_instance(turn, envelope)
            if not alone and self._state.is_durable:
                instance = self._copy_of(instance)
            result = await rpc.handler(instance, **arguments)
        except EntityError as error:
            if type(error) not in rpc.raises.values():
                raise
            self._around.counters.declared_errors += 1
            turn.staged.clear()
            self._restore(alone=alone)
            return declared_reply(error, limit=limits.payload_limit), None
        finally:
            leave_turn(turn, entered)
            leave_context(context)
        reply = result_reply(result, limit=limits.payload_limit, max_depth=limits.max_depth)
        if not rpc.readonly:
            return reply, self._state.write_of(instance.state)
        self._restore(alone=alone)
        return reply, None

    def _restore(self, *, alone: bool) -> None:
        """Let the next turn see the committed state, with what `on_start` has changed in it."""
        instance = self._instance
        if instance is None or not alone or not self._state.is_durable:
            return
        instance.state = self._state.decode(instance)

    async def _live_instance(self, turn: Turn, envelope: Envelope) -> Entity[Any]:
        """Return the instance with the last committed state, started."""
        if self._instance is not None:
            return self._instance
        async with self._starting:
            if self._instance is None:
                instance = make_instance(self._definition.entity, self._activation)
                try:
                    instance.state = self._state.decode(instance)
                except PersistenceFailedError as error:
                    raise CannotSucceed(envelope, error) from error
                before = len(turn.staged)
                await instance.on_start()
                self._from_start = turn.staged[before:]
                del turn.staged[before:]
                self._state.started(instance.state)
                self._instance = instance
        return self._instance

    def _copy_of(self, instance: Entity[Any]) -> Entity[Any]:
        twin = copy.copy(instance)
        twin.state = self._state.decode(instance)
        return twin

    # Ending

    async def _commit(
        self, turn: Turn, message: Message, reply: bytes, write: StateWrite | None, after: str | None
    ) -> Committed | None:
        """End the turn; None: the outbox has no room for what it sent."""
        around = self._around
        around.check()
        sends = self._from_start + turn.staged
        try:
            done = await around.committer.commit(
                self._activation.member,
                message,
                reply,
                write,
                sends,
                version=self._state.version,
                after=CLAIM_NOTHING if after is None or around.ending.is_set() else after,
            )
        finally:
            if sends:  # whatever is answered: a commit whose reply was lost has sent them
                around.sent()
        if done.word == "lost":
            around.counters.lost += 1
            raise MustReload
        if done.word == "full":
            return None
        around.counters.commits += 1
        around.made_room(self._activation.member)
        self._state.committed(write)
        if sends:
            self._from_start = []
        return done

    def _answer(self, message: Message, envelope: Envelope | None, reply: bytes) -> None:
        if envelope is not None and envelope.reply_to is not None:
            try:
                self._around.replies.post(envelope.reply_to, message.id, reply)
            except MalformedMessageError as error:
                logger.warning("the reply to %s has no place to go: %s", message.id, error)

    async def _failed(self, message: Message, envelope: Envelope, error: Exception) -> bool:
        """Count a failure; return whether the message is to be tried again, after its pause."""
        around, retry = self._around, self._definition.retry
        around.counters.failures += 1
        reply = failed_reply(outward(error, self._activation.address.id))
        failures = await around.committer.fail(
            self._activation.member,
            message,
            most=retry.max_attempts,
            record=self._record(message, "it failed too often", error),
            reply=reply,
        )
        if failures is None:
            around.counters.buried += 1
            self._activation.mark()
            await self._around.buried(self._activation.address)
            logger.error(
                "message %s to %s is a dead letter", message.id, self._activation.address, exc_info=error
            )
            self._answer(message, envelope, reply)
            return False
        logger.warning(
            "message %s to %s failed (%d of %d): %s: %s",
            message.id,
            self._activation.address,
            failures,
            retry.max_attempts,
            type(error).__name__,
            error_text(error),
        )
        message.failures = failures
        seconds = pause_after(
            failures, base=retry.base.total_seconds(), factor=retry.factor, longest=_LONGEST_PAUSE
        )
        await pause(self._activation, message, seconds)
        return True

    async def _bury(
        self, message: Message, envelope: Envelope | None, error: ClusterError, reason: str
    ) -> None:
        reply = failed_reply(error)
        await self._around.committer.fail(
            self._activation.member, message, most=0, record=self._record(message, reason, error), reply=reply
        )
        self._around.counters.buried += 1
        self._activation.mark()  # unlike a commit, this has not claimed what comes next
        await self._around.buried(self._activation.address)
        logger.error("message %s to %s is a dead letter: %s", message.id, self._activation.address, reason)
        self._answer(message, envelope, reply)

    def _record(self, message: Message, reason: str, error: Exception) -> bytes:
        record = DeadRecord(
            message=message.content,
            reason=reason,
            error_type=type(error).__name__,
            error_text=error_text(error),
            traceback=traceback_text(error),
            failures=message.failures + 1,
            deaths=message.deaths,
            buried_ms=self._around.server_ms(),
            capacity=self._definition.capacity or self._around.limits.capacity,
            runner_id=self._around.runner_id,
            execution=self._execution_id(message),
        )
        return encode(record, limit=None)

    def _execution_id(self, message: Message) -> str:
        """What a replay resumes, where the message's id alone does not say it."""
        try:
            envelope = open_envelope(message.content, max_depth=self._around.limits.max_depth)
        except MalformedMessageError:
            return ""
        return execution_of(message, envelope) if isinstance(envelope, Envelope) else ""


def _own_cancellation(error: asyncio.CancelledError) -> Exception:
    """Return the failure of a handler that awaited something cancelled; raise if it is us who are."""
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise error
    failure = RuntimeError("it awaited a task or future that was cancelled")
    failure.__cause__ = error
    return failure
