"""The crons of one runner: those whose shards are owned here are planned, ticks that come are run and noted.

A tick runs inside a turn of its entity: what is known of turns (attempts, burying, hand-off) holds for it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.entity import (
    ClusterContext,
    CronDefinition,
    Tick,
    TickRunner,
    Turn,
    enter_context,
    leave_context,
    outside_turn,
)
from redis_cluster_kit.errors import FencedError, KitError, PersistenceFailedError
from redis_cluster_kit.identity import EntityAddress, ShardId, public_message_id
from redis_cluster_kit.ownership import OwnedShard
from redis_cluster_kit.settings import Settings
from redis_cluster_kit.snowflake import Snowflake
from redis_cluster_kit.storage import Hold, InstantRow, SqlCrons, SqlTicks

from .cron_counters import CronCounters
from .cron_planner import CronPlanner, PlannedCron
from .cron_sweeper import CronSweeper
from .error_texts import error_text
from .tick_messages import TickMessages, cron_shard, instant_ms, instant_text, moment

logger = logging.getLogger(__name__)

T = TypeVar("T")

HEARTBEAT_EVERY = timedelta(seconds=30)
_STALE_AFTER = 2 * HEARTBEAT_EVERY
_LOOK_EVERY = 1.0
_LONGEST_SILENCE = 10.0
"""So long nothing may have been planned before the runner is not ready."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_MS = timedelta(milliseconds=1)


class RunningTick:
    """A tick that runs here: what its function acts through."""

    def __init__(self, host: CronHost, cron: CronDefinition, turn: Turn, row: InstantRow) -> None:
        self._host = host
        self.cron = cron
        self.turn = turn
        self.row = row
        self.beat_ms = host.clock.now_ms()

    @property
    def name(self) -> str:
        """The cron's name."""
        return self.cron.name

    @property
    def scheduled(self) -> datetime:
        """The instant it stands for."""
        return moment(self.row.scheduled)

    @property
    def cluster(self) -> Any:
        """The cluster."""
        return self._host.cluster

    def resource(self, type: type[Any], /) -> Any:
        """Return what `lifespan` provided."""
        return self._host.resource(type)

    def generate_id(self) -> Snowflake:
        """Return a new id."""
        return self._host.generate_id()

    async def heartbeat(self) -> None:
        """Note that it is alive."""
        await self._host.beat(self)

    def context(self) -> ClusterContext:
        """Return what `current()` says inside."""
        turn, address = self.turn, self.turn.address
        id = turn.message_id
        return ClusterContext(
            shard_id=address.shard,
            runner_id=turn.runner_id,
            is_leader=True,
            fence=turn.fence,
            message_id=id and public_message_id(id, address.shard.group, address.type, address.id),
            attempt=turn.attempt,
        )


class CronHost(TickRunner):
    """What this runner does about crons."""

    def __init__(
        self,
        definitions: Iterable[CronDefinition],
        shard_counts: Mapping[str, int],
        store: SqlCrons,
        ticks: SqlTicks,
        messages: TickMessages,
        clock: Clock,
        settings: Settings,
        *,
        cluster: Any,
        resource: Callable[[type[Any]], Any],
        generate_id: Callable[[], Snowflake],
    ) -> None:
        self.clock = clock
        self.cluster = cluster
        self.resource = resource
        self.generate_id = generate_id
        self.ticks = ticks
        self.attempt = settings.statement_timeout.total_seconds()
        self.definitions = {definition.name: definition for definition in definitions}
        self.counters = {name: CronCounters() for name in self.definitions}
        self._by_shard: dict[ShardId, list[CronDefinition]] = {}
        for definition in self.definitions.values():
            shard = cron_shard(definition.shard_group, definition.name, shard_counts)
            self._by_shard.setdefault(shard, []).append(definition)
        self._by_type = {definition.type: definition for definition in self.definitions.values()}
        self._owned: dict[ShardId, OwnedShard] = {}
        self._running: set[RunningTick] = set()
        attempt = settings.statement_timeout
        self.planner = CronPlanner(store, messages, clock, self.counters, attempt)
        self._moved = asyncio.Event()
        self.sweeper = CronSweeper(
            store, ticks, messages, clock, attempt, lambda: self.planner.planned, self.counters
        )

    # What shards tell it

    def begin(self, owned: OwnedShard, lose: Callable[[BaseException], None]) -> None:
        """A shard is served here from now on."""
        self._owned[owned.shard] = owned
        crons = self._by_shard.get(owned.shard, [])
        if crons:
            self.planner.gained(PlannedCron(definition, owned, lose) for definition in crons)

    def end(self, owned: OwnedShard) -> None:
        """It is served no longer."""
        self.planner.gone(owned)
        if self._owned.get(owned.shard) is owned:
            del self._owned[owned.shard]

    async def buried(self, address: EntityAddress) -> None:
        """A message has become a dead letter: a tick's row says so, now or with the next sweep."""
        cron = self._by_type.get(address.type)
        if cron is None:
            return
        logger.error("cron %s: the tick of %s is a dead letter", cron.name, address.id)
        try:
            row = self._row(cron, address)
            with anyio.fail_after(self.attempt):
                await self.ticks.end(row, "dead", now_ms=self.clock.now_ms(), timeout=self.attempt)
        except (PersistenceFailedError, TimeoutError) as error:
            logger.warning("cron %s: that its tick is dead is not noted yet: %s", cron.name, error)

    def clock_moved(self) -> None:
        """A test has moved the clock on."""
        self.planner.wake()
        self._moved.set()

    # Health

    @property
    def trouble(self) -> str:
        """What keeps this runner from being ready: crons it cannot plan, ticks it cannot say are alive."""
        failing_for = self.planner.failing_for
        if failing_for >= _LONGEST_SILENCE:
            return f"crons cannot be planned for {failing_for:.0f} s: {self.planner.trouble}"
        now = self.clock.now_ms()
        for running in self._running:
            silent = (now - running.beat_ms) * _MS
            if silent > _STALE_AFTER:
                at, for_so_long = instant_text(running.row.scheduled), f"{silent.total_seconds():.0f} s"
                return f"cron {running.name}: its tick of {at} is stale, no heartbeat for {for_so_long}"
        return ""

    @property
    def remarks(self) -> list[str]:
        """What is wrong and keeps nobody from being ready."""
        now = self.clock.now_ms()
        found: list[str] = []
        for name, counted in sorted(self.counters.items()):
            if counted.open_until > now:
                found.append(f"cron {name}: its breaker is open until {moment(counted.open_until)}")
            elif counted.failing:
                found.append(f"cron {name} is failing: {counted.failing}")
        return found

    # Running ticks

    async def run(self, cron: CronDefinition, turn: Turn) -> None:
        """Bring a tick to its end; what its function raises is raised, and tried again as messages are."""
        row = self._row(cron, turn.address)
        await turn.before_wait()  # whoever dies now has been noted
        oldest = self.clock.now_ms() - cron.skip_if_older_than // _MS
        status = await self._surely(
            lambda: self.ticks.begin(
                row,
                attempt=turn.attempt,
                now_ms=self.clock.now_ms(),
                oldest=oldest,
                timeout=self.attempt,
            )
        )
        if status == "late":
            await self._skip(cron, row)
        elif status in ("begun", "pending"):
            if status == "begun":
                self.counters[cron.name].began(max(0.0, self.clock.now() - row.scheduled / 1000))
            await self._run(RunningTick(self, cron, turn, row))
        else:
            logger.info("cron %s: the tick of %s is %s already", cron.name, turn.address.id, status or "gone")

    async def _run(self, running: RunningTick) -> None:
        counted, started = self.counters[running.name], Clock.boot()
        token = enter_context(running)
        self._running.add(running)
        try:
            with outside_turn():
                await running.cron.main(Tick(running))
        except (Exception, asyncio.CancelledError) as error:
            if _is_failure(error, running.row.hold.shard):
                await self._failed(running, error)
            raise
        finally:
            self._running.discard(running)
            leave_context(token)
        run = running.turn.opened_run
        if run is not None and run.parked is not None:
            return  # it has caught the end of its wait, and is parked all the same
        await self._surely(
            lambda: self.ticks.done(running.row, now_ms=self.clock.now_ms(), timeout=self.attempt)
        )
        counted.ran(Clock.boot() - started, self.clock.now())

    async def _skip(self, cron: CronDefinition, row: InstantRow) -> None:
        await self._surely(
            lambda: self.ticks.end(
                row, "skipped", reason="late", now_ms=self.clock.now_ms(), timeout=self.attempt
            )
        )
        self.counters[cron.name].skipped["late"] += 1
        logger.warning(
            "cron %s: the tick of %s comes later than %s after its time and is skipped",
            cron.name,
            moment(row.scheduled),
            cron.skip_if_older_than,
        )

    async def _failed(self, running: RunningTick, error: BaseException) -> None:
        """Count a failed attempt, here and for the whole cluster; that it raised is told by its turn."""
        counted = self.counters[running.name]
        text = type(error).__name__
        if isinstance(error, Exception):
            text = f"{text}: {error_text(error)}"
        counted.failed(text)
        breaker, now = running.cron.circuit_breaker, self.clock.now_ms()
        open_until = 0 if breaker is None else now + breaker.reset_after // _MS
        try:
            with anyio.fail_after(self.attempt):
                failures, counted.open_until = await self.ticks.failed(
                    running.row, text, open_until=open_until, now_ms=now, timeout=self.attempt
                )
        except (PersistenceFailedError, TimeoutError) as trouble:
            logger.warning("cron %s: a failure was not counted: %s", running.name, trouble)
            return
        if counted.open_until > now:
            logger.error("cron %s: its breaker is open after %d failures in a row", running.name, failures)

    async def _surely(self, act: Callable[[], Awaitable[T]]) -> T:
        """Write until it is written; losing the shard, or a hand-off that took too long, cuts it short."""
        pause, told = _FIRST_PAUSE, False
        while True:
            try:
                with anyio.fail_after(2 * self.attempt):
                    return await act()
            except (PersistenceFailedError, TimeoutError) as error:
                if not told:
                    logger.warning("a tick waits for the database: %s", error)
                told = True
            await anyio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(_LONGEST_PAUSE, pause * 2)

    def _row(self, cron: CronDefinition, address: EntityAddress) -> InstantRow:
        owned = self._owned.get(address.shard)
        if owned is None:
            raise FencedError(
                shard=str(address.shard), fence=0, store="this runner", detail="it is not owned"
            )
        owned.check()
        return InstantRow(cron.name, instant_ms(address.id), Hold(owned.shard, owned.fence, owned.nonce))

    # Heartbeats

    async def beat(self, running: RunningTick) -> None:
        """Note that a tick is alive."""
        now = self.clock.now_ms()
        with anyio.fail_after(self.attempt):
            await self.ticks.beat(running.row, now_ms=now, timeout=self.attempt)
        running.beat_ms = now

    async def keep_alive(self) -> None:
        """Note every 30 s that running ticks are alive, for ever."""
        while True:
            with anyio.move_on_after(_LOOK_EVERY):
                await self._moved.wait()
            self._moved.clear()
            now = self.clock.now_ms()
            old = now - HEARTBEAT_EVERY // _MS
            # One after now: the clock was set back, and it would be long until that is old.
            for running in [one for one in self._running if not old < one.beat_ms <= now]:
                try:
                    await self.beat(running)
                except (KitError, TimeoutError) as error:  # whose shard it is, its poll finds out
                    logger.warning("cron %s: a heartbeat was not noted: %s", running.name, error)

    async def keep(self) -> None:
        """Plan, note heartbeats and tidy up, for ever."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.planner.run)
            tasks.start_soon(self.keep_alive)
            tasks.start_soon(self.sweeper.run)

    async def look(self) -> None:
        """Plan all that is due now; what cannot be planned is tried again by itself."""
        with suppress(PersistenceFailedError, TimeoutError):
            await self.planner.look()


def _is_failure(error: BaseException, shard: ShardId) -> bool:
    """Whether a tick's function has failed, and was not merely ended from outside."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and not task.cancelling()
    return not (isinstance(error, FencedError) and error.shard == str(shard))
