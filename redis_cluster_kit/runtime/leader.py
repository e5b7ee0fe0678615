"""One leadership: from gaining a singleton's shard to its hand-off or loss.

Loads the state, runs the hooks once each, runs the function and runs it again after a failure. It ends with
the shard: at a hand-off the function is cancelled at once. How state and notes are written is beside it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.entity import (
    ClusterContext,
    DurableRun,
    Hook,
    SingletonContext,
    SingletonDefinition,
    SingletonMetadata,
    enter_context,
    leave_context,
    takes_context,
)
from redis_cluster_kit.errors import (
    FencedError,
    KitError,
    LeaderHandoffFailedError,
    PersistenceFailedError,
    StateLoadFailedError,
)
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.ownership import OwnedShard
from redis_cluster_kit.snowflake import Snowflake
from redis_cluster_kit.storage import Holder, PutBackError
from redis_cluster_kit.telemetry import TRACING

from .backoff import pause_after
from .leader_executions import LeaderExecutions
from .leader_notes import STALE_AFTER, LeaderNotes
from .leader_state import LeaderState
from .rounds import Rounds

if TYPE_CHECKING:
    from .singletons import SingletonHost

logger = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 60.0
_CALM = 60.0
"""A run of so many seconds was well: the next failure begins with the first pause again."""
_LAST_WORDS = 1.0


class SingletonHealth(NamedTuple):
    """How a singleton led here is: a text, and whether it keeps the runner from being ready."""

    text: str
    is_ready: bool


class Leader:
    """Leads one singleton while its shard is owned; also what its context acts through."""

    def __init__(
        self,
        host: SingletonHost,
        definition: SingletonDefinition,
        owned: OwnedShard,
        lose: Callable[[BaseException], None],
    ) -> None:
        self.definition = definition
        self._host = host
        self._owned = owned
        self._counters = host.counters[definition.name]
        keep = definition.state_ttl
        holder = Holder(
            definition.name,
            owned.shard,
            owned.fence,
            owned.nonce,
            None if keep is None else max(1, keep // timedelta(milliseconds=1)),
        )
        attempt = host.attempt
        self._state = LeaderState(
            definition, host.store, owned, holder, self._counters, ttl=host.ttl, attempt=attempt, lose=lose
        )
        self._notes = LeaderNotes(host.store, holder, host.clock, self._counters, attempt=attempt, lose=lose)
        self._executions = LeaderExecutions(
            definition.name, host.executions, owned, lambda: self._state.version, lose
        )
        self._notes.on_beat = self._state.check_copy
        self._context = SingletonContext[Any](self)
        self._lost = lose
        self._trouble = ""
        self._is_leading = False
        self._rounds: Rounds | None = None
        """Those the function has begun last."""
        self.ended = anyio.Event()

    # What its context asks for

    @property
    def name(self) -> str:
        """The singleton's name."""
        return self.definition.name

    @property
    def shard(self) -> ShardId:
        """The shard it belongs to."""
        return self._owned.shard

    @property
    def fence(self) -> int:
        """The fence it leads under."""
        return self._owned.fence

    @property
    def cluster(self) -> Any:
        """The cluster."""
        return self._host.cluster

    @property
    def metadata(self) -> SingletonMetadata:
        """What is kept of its runs."""
        return self._notes.metadata

    def read(self) -> Any:
        """Return a copy of the state."""
        return self._state.read()

    async def write(self, change: Callable[[Any], Any], /) -> None:
        """Save a state, which ends an execution."""
        await self._state.write(change)
        self._executions.saved()
        self._notes.saved()

    async def heartbeat(self) -> None:
        """Say now that it is alive."""
        await self._notes.write()

    def every(self, interval: timedelta, /) -> AsyncIterator[datetime]:
        """Yield the time, round by round."""
        if interval <= timedelta():
            raise ValueError(f"every() needs an interval above 0, got {interval}")
        self._leave_rounds(None)
        self._rounds = Rounds(self, self._host, self._notes, interval.total_seconds())
        return self._rounds

    async def end_round(self) -> None:
        """A round of `every` has ended: so has its execution."""
        await self._executions.close()
        self._notes.end()

    def _leave_rounds(self, error: BaseException | None) -> None:
        rounds, self._rounds = self._rounds, None
        if rounds is not None:
            rounds.left(error)

    def resource(self, type: type[Any], /) -> Any:
        """Return what `lifespan` provided."""
        return self._host.resource(type)

    def generate_id(self) -> Snowflake:
        """Return a new id."""
        return self._host.generate_id()

    def durable_run(self) -> DurableRun:
        """Return the run of the execution that is open."""
        return self._executions.run()

    def context(self) -> ClusterContext:
        """Return what `current()` says inside."""
        shard, fence = self._owned.shard, self._owned.fence
        return ClusterContext(shard_id=shard, runner_id=self._host.runner_id, is_leader=True, fence=fence)

    # What its host asks

    @property
    def is_leading(self) -> bool:
        """Whether its state is loaded and the leadership has begun."""
        return self._is_leading

    def clock_moved(self) -> None:
        """A test has moved the clock on."""
        if self._is_leading:
            self._notes.look()

    def health(self) -> SingletonHealth:
        """Say how it is: a heartbeat too old, no execution for too long, or a store that failed."""
        if not self._is_leading:
            return SingletonHealth(self._trouble or "starting", not self._trouble)
        silent, idle = self._notes.silent_for(), self._notes.idle_for()
        if silent > STALE_AFTER:
            reason = f": {self._notes.trouble}" if self._notes.trouble else ""
            return SingletonHealth(f"stale, no heartbeat for {silent.total_seconds():.0f} s{reason}", False)
        expected = self.definition.expected_interval
        if expected is not None and idle > 2 * expected:
            late = (
                f"no execution for {idle.total_seconds():g} s, expected every {expected.total_seconds():g} s"
            )
            return SingletonHealth(
                f"{late}{self._notes.failing and f'; it failed: {self._notes.failing}'}", False
            )
        trouble = self._state.trouble or self._trouble
        if trouble:
            return SingletonHealth(trouble, False)
        return SingletonHealth(f"failing: {self._notes.failing}" if self._notes.failing else "ok", True)

    # Its life

    async def run(self) -> None:
        """Lead until the shard is handed off or lost; the hooks have run when this returns."""
        token = enter_context(self)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_hand_off, tasks.cancel_scope)
                await self._load(with_notes=True)
                self._is_leading = True
                try:
                    tasks.start_soon(self._notes.keep)
                    tasks.start_soon(self._state.keep_copied)
                    await self._hook(self.definition.on_become_leader)
                    await self._work()
                finally:
                    await self._end()
        finally:
            leave_context(token)
            self.ended.set()

    async def _watch_hand_off(self, scope: anyio.CancelScope) -> None:
        await self._owned.ending.wait()
        scope.cancel()

    async def _load(self, *, with_notes: bool = False) -> None:
        """Load the state, again and again with backoff until it can be read."""
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._state.load()
                await self._executions.load()
                if with_notes:
                    await self._notes.load()
            except FencedError as error:
                self._lost(error)
                await anyio.sleep_forever()
            except (StateLoadFailedError, PersistenceFailedError, TimeoutError) as error:
                if not self._trouble:
                    logger.warning("singleton %s is not led yet: %s", self.name, error)
                self._trouble = str(error) or "its metadata could not be read in time"
            else:
                self._trouble = ""
                return
            await anyio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(_LONGEST_PAUSE / 12, pause * 2)

    async def _work(self) -> None:
        """Run the function; again after it raised, with backoff; never again after it returned."""
        failures = 0
        while True:
            started = Clock.boot()
            failure = await self._run_once()
            if failure is None:
                await anyio.sleep_forever()  # it is done, and stays owned: nobody else is elected for it
                return
            if not self._owned.is_held:
                await anyio.sleep_forever()  # the shard's scope ends it
            if isinstance(failure, PutBackError):
                logger.info("singleton %s begins again, and goes on with what was put back", self.name)
                await self._load()
                continue
            failures = 1 if Clock.boot() - started > _CALM else failures + 1
            await self._executions.failed(failure)
            pause = pause_after(failures, base=_FIRST_PAUSE, factor=2, longest=_LONGEST_PAUSE)
            self._failed(failure, pause)
            await anyio.sleep(pause)
            await self._load()  # also finds out about a write in doubt

    async def _run_once(self) -> BaseException | None:
        """Run the function once; return what it raised."""
        self._notes.begin()
        failure: BaseException | None = None
        try:
            with self._span():
                await self.definition.main(self._context)
                await self._executions.close()
        except asyncio.CancelledError as error:
            if _cancellations():
                raise
            failure = error  # nobody cancelled it: it awaited something that was
        except Exception as error:  # noqa: BLE001 - whatever it raises is its failure
            failure = error
        finally:
            self._leave_rounds(failure)
        if failure is None:
            self._notes.end()
        return failure

    def _span(self) -> AbstractContextManager[object]:
        """Each run of the function is a span, and so is each round of `every`, which begins a trace anew."""
        if TRACING.tracer is None:
            return nullcontext()
        return TRACING.handling(
            f"singleton.{self.name}", shard=self._owned.shard, runner_id=self._host.runner_id
        )

    def _failed(self, error: BaseException, pause: float) -> None:
        self._notes.failed(error)
        logger.error("singleton %s failed and is run again in %.1f s", self.name, pause, exc_info=error)

    # Its end

    async def _end(self) -> None:
        """Run the last hook and note what is left, whatever ended the leadership, within the drain budget."""
        self._is_leading = False
        budget = self._host.budget.total_seconds()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(budget) as scope:
                await self._hook(self.definition.on_lose_leadership)
            if scope.cancelled_caught:
                self._counters.errors["LeaderHandoffFailed"] += 1
                late = f"on_lose_leadership was cancelled after {budget:g} s"
                logger.error("%s", LeaderHandoffFailedError(singleton_name=self.name, detail=late))
            if self._owned.is_held:
                with anyio.move_on_after(_LAST_WORDS):
                    await self._say_last_words()

    async def _say_last_words(self) -> None:
        try:
            await self._notes.write()
        except KitError as error:
            logger.warning("singleton %s: its last runs were not noted: %s", self.name, error)

    async def _hook(self, hook: Hook[Any] | None) -> None:
        """Run a hook once; what it raises is logged, and changes nothing about who leads."""
        if hook is None:
            return
        call = cast("Callable[..., Awaitable[None]]", hook)
        before = _cancellations()
        try:
            await (call(self._context) if takes_context(hook) else call())
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _cancellations() > before:
                raise  # it is we who are cancelled; else it awaited something that was
            self._notes.failed(error)
            logger.exception("a hook of singleton %s failed", self.name)


def _cancellations() -> int:
    """Return how many cancellations of the present asyncio task are not dealt with yet."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
