"""The executions that run here: each turn that makes a durable call gets one, and is woken when it waits.

What ends is forgotten beside it, in `forgetting`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
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
    Recording,
    Resolver,
)
from redis_cluster_kit.entity import Turn
from redis_cluster_kit.envelope import Envelope
from redis_cluster_kit.errors import DatabaseRequiredError, FencedError, KitError
from redis_cluster_kit.settings import DurableSettings
from redis_cluster_kit.storage import (
    Place,
    Waiting,
)

from .execution_stores import ENTITY, Stores, execution_of, message_of
from .forgetting import Forgetting
from .set_aside import SetAsideExecutions

logger = logging.getLogger(__name__)

_COUNT_EVERY = 5.0
_MS = timedelta(milliseconds=1)


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
        self.forgetting = None if stores is None else Forgetting(stores, parking, settings, counters)
        self._stores = stores
        self._clock = clock
        self.aside = 0
        """Executions set aside in the cluster, when they were counted last."""
        self._resolver: Resolver | None = None

    async def join(self) -> None:
        """Learn what tokens are signed with."""
        stores = self._stores
        if stores is None or self.forgetting is None:
            return
        timeout = stores.patience.attempt
        stores.tokens = DeferredTokens(await stores.deferreds.secret(timeout=timeout))
        self._resolver = Resolver(
            stores.deferreds,
            stores.tokens,
            self.wake,
            self.forgetting.may_run,
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
        if self.forgetting is None:
            return
        async with anyio.create_task_group() as tasks:
            for part in (self.forgetting.watch, self._count_aside, self.resolver.watch):
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
        if self.forgetting is not None:
            self.forgetting.ended(subject, execution)

    async def _count_aside(self) -> None:
        """See now and then how many executions wait for a decision, for ever; health and metrics tell."""
        stores = self.stores
        while True:
            try:
                self.aside = await stores.singletons.count(timeout=stores.patience.attempt)
            except KitError as error:
                logger.debug("executions set aside were not counted: %s", error)
            await anyio.sleep(_COUNT_EVERY)

    def clock_moved(self) -> None:
        """A test has moved the clock on."""
        self.bell.ring_all()
