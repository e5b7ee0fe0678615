"""The executions that run here: each turn that makes a durable call gets one, and what ends is forgotten.

Deletion is no part of a turn: ended executions are gathered and deleted in batches. What a crash left behind
goes when its retention has passed, unless its message is still there.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.delivery import HeldFence, Message, Parking
from redis_cluster_kit.durable import (
    Bell,
    DeferredTokens,
    DurableCounters,
    Execution,
    KnownDeferreds,
    MemoryWaits,
    OpenAs,
    ParkingWaits,
    Patience,
    Recording,
    Resolver,
)
from redis_cluster_kit.entity import Turn
from redis_cluster_kit.envelope import EXECUTION_HEADER, Envelope
from redis_cluster_kit.errors import DatabaseRequiredError, FencedError, KitError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.settings import DurableSettings
from redis_cluster_kit.storage import (
    Deferreds,
    Journal,
    Place,
    RecordedCall,
    SetAside,
    SingletonExecutions,
    Waiting,
    parse_set_aside,
)

logger = logging.getLogger(__name__)

_MOST = 100
_QUEUE = 10_000
_COUNT_EVERY = 5.0
_FIRST_CLEAN, _CLEAN_EVERY = 30.0, 600.0
_MS = timedelta(milliseconds=1)
ENTITY, SINGLETON = "e:", "s:"


class Stores:
    """What executions are kept in; made where there is a database."""

    def __init__(
        self,
        journal: Journal,
        singletons: SingletonExecutions,
        deferreds: Deferreds,
        patience: Patience,
    ) -> None:
        self.journal = journal
        self.singletons = singletons
        self.deferreds = deferreds
        self.patience = patience
        self.tokens: DeferredTokens | None = None
        """Known when the runner has joined."""


class Executions:
    """All executions of one runner."""

    def __init__(
        self,
        stores: Stores | None,
        parking: Parking,
        clock: Clock,
        settings: DurableSettings,
        counters: DurableCounters,
    ) -> None:
        self.parking = parking
        self.settings = settings
        self.counters = counters
        self.bell = Bell()
        self._stores = stores
        self._clock = clock
        self._ended: dict[tuple[str, str], None] = {}
        self._news = anyio.Event()
        self.aside = 0
        """Executions set aside in the cluster, when they were counted last."""
        self._resolver: Resolver | None = None

    async def join(self) -> None:
        """Learn what tokens are signed with."""
        stores = self._stores
        if stores is None:
            return
        timeout = stores.patience.attempt
        stores.tokens = DeferredTokens(await stores.deferreds.secret(timeout=timeout))
        self._resolver = Resolver(
            stores.deferreds,
            stores.tokens,
            self.wake,
            self.may_run,
            self.settings,
            self.counters,
            timeout=timeout,
        )

    @property
    def resolver(self) -> Resolver:
        """What resolves deferreds; `DatabaseRequiredError` without a database."""
        if self._resolver is None:
            raise DatabaseRequiredError
        return self._resolver

    async def watch(self) -> None:
        """Everything that is done in the background, for ever."""
        if self._stores is None:
            return
        async with anyio.create_task_group() as tasks:
            for part in (self._forget_ended, self._clean, self._count_aside, self.resolver.watch):
                tasks.start_soon(part)

    # Runs

    def of_turn(
        self,
        turn: Turn,
        message: Message,
        envelope: Envelope,
        fence: HeldFence,
        *,
        parks: bool,
        ending: anyio.Event,
        check: Callable[[], None],
    ) -> Execution:
        """Return the run of an entity's turn; `DatabaseRequiredError` without a database."""
        address = turn.address
        member = f"{address.type}:{address.id}"
        place = Place(
            ENTITY + member,
            execution_of(message, envelope),
            address.shard,
            int(fence.number),
            fence.nonce,
        )
        waits = ParkingWaits() if parks else self.waits_in_memory(place, ending)
        journal, keep_ms = self.stores.journal, self.keep_ms
        recording = self.recording(
            place,
            lambda place, timeout: journal.open(place, keep_ms=keep_ms, timeout=timeout),
            check=check,
        )
        return self.run(place, recording, waits, check=check, before=turn.before_wait)

    def waits_in_memory(self, place: Place, ending: anyio.Event | None) -> MemoryWaits:
        """Return the waits of what is not parked."""
        stores = self.stores

        async def woken() -> None:
            key = (place.subject, place.execution)
            await stores.deferreds.woken([key], timeout=stores.patience.attempt)

        poll = self.settings.wake_poll.total_seconds()
        return MemoryWaits(self.bell, place.subject, self._clock, poll=poll, woken=woken, ending=ending)

    def recording(
        self,
        place: Place,
        open_as: OpenAs,
        *,
        check: Callable[[], None],
        lose: Callable[[FencedError], None] | None = None,
    ) -> Recording:
        """Return the journal of an execution as its owner writes it."""
        stores = self.stores
        return Recording(stores.journal, place, stores.patience, open_as, check=check, lose=lose)

    def run(
        self,
        place: Place,
        recording: Recording,
        waits: ParkingWaits | MemoryWaits,
        *,
        check: Callable[[], None],
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> Execution:
        """Return a run of an execution."""
        stores = self.stores
        assert stores.tokens is not None
        return Execution(
            place.execution,
            recording,
            KnownDeferreds(stores.deferreds, stores.tokens, place, stores.patience, check),
            waits,
            self._clock,
            self.settings,
            self.counters,
            before=before,
        )

    @property
    def stores(self) -> Stores:
        """What executions are kept in; `DatabaseRequiredError` without a database."""
        if self._stores is None:
            raise DatabaseRequiredError
        return self._stores

    @property
    def set_aside(self) -> SetAsideExecutions:
        """Those of singletons that failed too often."""
        stores = self.stores
        return SetAsideExecutions(stores.journal, stores.singletons, timeout=stores.patience.attempt)

    @property
    def has_stores(self) -> bool:
        """Whether there is a database."""
        return self._stores is not None

    @property
    def keep_ms(self) -> int:
        """Milliseconds a journal is kept that nobody touches."""
        return self.settings.retention // _MS

    # What wakes them

    def on_wake(self, fields: list[bytes]) -> None:
        """Take a nudge: k w s shard e subject."""
        self.bell.ring(fields[5].decode())

    async def wake(self, waiting: Waiting) -> bool:
        """Wake an execution wherever it is; False: it runs, and may not have seen what came."""
        if not waiting.subject.startswith(ENTITY):
            await self.parking.tell_owner(waiting.shard, waiting.subject)
            return True
        member, id = waiting.subject.removeprefix(ENTITY), message_of(waiting.execution)
        return await self.parking.wake(waiting.shard, member, id) != "taken"

    # Their end

    def ended_turn(self, turn: Turn) -> None:
        """The message of a turn is committed."""
        address, run = turn.address, turn.opened_run
        if isinstance(run, Execution):
            self.ended(f"{ENTITY}{address.type}:{address.id}", run.id)

    def ended(self, subject: str, execution: str) -> None:
        """Forget an execution soon: its message is committed, or its singleton has gone on."""
        if len(self._ended) < _QUEUE:
            self._ended[subject, execution] = None
            self._news.set()

    async def _forget_ended(self) -> None:
        """Delete what has ended, in batches, for ever."""
        if self._stores is None:
            return
        while True:
            await self._news.wait()
            await anyio.sleep(0.2)
            self._news = anyio.Event()
            while self._ended and await self._forget_some(self._stores):
                pass

    async def _forget_some(self, stores: Stores) -> bool:
        batch = list(self._ended)[:_MOST]
        try:
            await stores.journal.forget(batch, timeout=stores.patience.attempt)
        except KitError as error:
            logger.warning("journals of ended executions are deleted later: %s", error)
            await anyio.sleep(1.0)
            return False
        for place in batch:
            self._ended.pop(place, None)
        self.counters.executions_forgotten += len(batch)
        return True

    async def _clean(self) -> None:
        """Delete what crashes left behind, for ever."""
        pause = _FIRST_CLEAN
        while self._stores is not None:
            await anyio.sleep(pause * random.uniform(0.75, 1.25))
            pause = _CLEAN_EVERY
            try:
                while await self.clean_once() == _MOST:
                    pass
            except KitError as error:
                logger.warning("journals that are over are not deleted yet: %s", error)

    async def clean_once(self) -> int:
        """Look at up to a hundred executions whose retention has passed, and as many deferreds without one.

        Returns how many there were, of that of which there were more.
        """
        stores = self.stores
        timeout, keep_ms = stores.patience.attempt, self.keep_ms
        found = await stores.journal.expired(most=_MOST, timeout=timeout)
        alive = {(subject, id) for subject, id, shard in found if await self._is_alive(subject, id, shard)}
        over = [(subject, id) for subject, id, _ in found if (subject, id) not in alive]
        if alive:
            await stores.journal.keep(alive, keep_ms=keep_ms, timeout=timeout)
        if over:
            await stores.journal.forget(over, timeout=timeout)
            self.counters.executions_forgotten += len(over)
        orphans = await stores.deferreds.forget_orphans(age_ms=keep_ms, most=_MOST, timeout=timeout)
        return max(len(found), orphans)

    async def _count_aside(self) -> None:
        """See now and then how many executions wait for a decision, for ever; health and metrics tell."""
        stores = self.stores
        while True:
            try:
                self.aside = await stores.singletons.count(timeout=stores.patience.attempt)
            except KitError as error:
                logger.debug("executions set aside were not counted: %s", error)
            await anyio.sleep(_COUNT_EVERY)

    async def may_run(self, waiting: Waiting) -> bool:
        """Whether an execution may still run: one that has not ended, one that is set aside."""
        if await self._is_alive(*waiting):
            return True
        if not waiting.subject.startswith(SINGLETON):
            return False
        stores, name = self.stores, waiting.subject.removeprefix(SINGLETON)
        return await stores.singletons.is_aside(name, waiting.execution, timeout=stores.patience.attempt)

    async def _is_alive(self, subject: str, execution: str, shard: ShardId) -> bool:
        """Whether something may still run it: a message that has not ended, the open one of a singleton."""
        if subject.startswith(ENTITY):
            return await self.parking.is_alive(shard, subject.removeprefix(ENTITY), message_of(execution))
        if not subject.startswith(SINGLETON):
            return True
        stores, name = self.stores, subject.removeprefix(SINGLETON)
        return execution == await stores.singletons.open_now(name, timeout=stores.patience.attempt)

    def clock_moved(self) -> None:
        """A test has moved the clock on."""
        self.bell.ring_all()


def execution_of(message: Message, envelope: Envelope) -> str:
    """Return what a message's execution is known by.

    Ids of the kit's own are unique. One that stands for an idempotency key may come again when its window has
    passed: there the message's place in the mailbox belongs to it.
    """
    named = envelope.headers.get(EXECUTION_HEADER)
    if named is not None:
        return named
    return f"{message.id}/{message.entry}" if message.kind == "k" else message.id


def message_of(execution: str) -> str:
    """Return the id of the message whose execution this is."""
    return execution.partition("/")[0]


class SetAsideExecutions:
    """The executions of singletons that failed too often; `cluster.executions`. Messages are dead letters."""

    def __init__(self, journal: Journal, singletons: SingletonExecutions, *, timeout: float) -> None:
        self._journal = journal
        self._singletons = singletons
        self._timeout = timeout

    async def list(self) -> Sequence[SetAside]:
        """Return them, oldest first."""
        return await self._singletons.list(timeout=self._timeout)

    async def recorded(self, id: str) -> Sequence[RecordedCall]:
        """Return the durable calls in the journal of one, in the order they came."""
        name, execution = parse_set_aside(id)
        return await self._singletons.recorded(name, execution, timeout=self._timeout)

    async def retry(self, id: str) -> bool:
        """Let the singleton go on with it as soon as the open execution has ended; False: there is none.

        RuntimeError while another one that was put back has not ended: one after the other.
        """
        name, execution = parse_set_aside(id)
        before = await self._singletons.put_back(name, execution, timeout=self._timeout)
        if before:
            raise RuntimeError(
                f"execution {before}@{name} was put back and has not ended: retry {id} when it is done"
            )
        return before is not None

    async def drop(self, id: str) -> bool:
        """Forget one for good; False: there is none of this id."""
        name, execution = parse_set_aside(id)
        if not await self._singletons.is_aside(name, execution, timeout=self._timeout):
            return False
        await self._journal.forget([(SINGLETON + name, execution)], timeout=self._timeout)
        return True
