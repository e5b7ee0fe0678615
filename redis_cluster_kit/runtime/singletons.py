"""The singletons of one runner: which shard each belongs to, who leads what here, and what nobody leads.

A shard's host starts the leaders of its shard; this knows them for health, metrics and the moved clock. Every
ten minutes it forgets the state of singletons whose `state_ttl` has passed and whose shard this runner owns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.entity import SingletonDefinition
from redis_cluster_kit.errors import KitError
from redis_cluster_kit.identity import ShardId, shard_number
from redis_cluster_kit.ownership import OwnedShard
from redis_cluster_kit.settings import Settings
from redis_cluster_kit.snowflake import Snowflake
from redis_cluster_kit.storage import Holder, SingletonStore

from .executions import Executions
from .leader import Leader, SingletonHealth
from .singleton_counters import SingletonCounters

logger = logging.getLogger(__name__)

_FIRST_CLEAN, _CLEAN_EVERY = 30.0, 600.0


class SingletonHost:
    """What this runner does about singletons."""

    def __init__(
        self,
        definitions: Iterable[SingletonDefinition],
        shard_counts: Mapping[str, int],
        store: SingletonStore,
        executions: Executions,
        clock: Clock,
        settings: Settings,
        runner_id: str,
        *,
        cluster: Any,
        resource: Callable[[type[Any]], Any],
        generate_id: Callable[[], Snowflake],
    ) -> None:
        self.store = store
        self.executions = executions
        self.clock = clock
        self.runner_id = runner_id
        self.cluster = cluster
        self.resource = resource
        self.generate_id = generate_id
        self.ttl = settings.lease.ttl
        self.attempt = settings.statement_timeout
        self.budget = settings.drain.budget
        self.counters: dict[str, SingletonCounters] = {}
        self._by_shard: dict[ShardId, list[SingletonDefinition]] = {}
        for definition in definitions:
            self.counters[definition.name] = SingletonCounters()
            shard = singleton_shard(definition.shard_group, definition.name, shard_counts)
            self._by_shard.setdefault(shard, []).append(definition)
        self._leaders: dict[str, Leader] = {}
        self._moved = anyio.Event()

    def begin(self, owned: OwnedShard, lose: Callable[[BaseException], None]) -> list[Leader]:
        """Return the leaders of a shard that was gained, to be run in its scope."""
        leaders = [
            Leader(self, definition, owned, lose) for definition in self._by_shard.get(owned.shard, [])
        ]
        self._leaders |= {leader.name: leader for leader in leaders}
        return leaders

    def end(self, leaders: Iterable[Leader]) -> None:
        """Forget the leaders of a shard that is gone."""
        for leader in leaders:
            if self._leaders.get(leader.name) is leader:
                del self._leaders[leader.name]

    @property
    def led(self) -> int:
        """How many singletons are led here; a copy, for metrics are read from other threads."""
        return sum(leader.is_leading for leader in list(self._leaders.values()))

    def health(self) -> dict[str, SingletonHealth]:
        """Say how each singleton is whose shard is owned here."""
        return {name: leader.health() for name, leader in sorted(self._leaders.items())}

    @property
    def remarks(self) -> list[str]:
        """What is wrong and keeps nobody from being ready: functions that fail and are run again."""
        return [
            f"singleton {name} is {how.text}"
            for name, how in self.health().items()
            if how.is_ready and how.text.startswith("failing")
        ]

    # Time

    async def sleep_until(self, due: float) -> None:
        """Wait until `Clock.now()` has come that far, also if a test moves it."""
        while (left := due - self.clock.now()) > 0:
            moved = self._moved
            with anyio.move_on_after(left):
                await moved.wait()

    def clock_moved(self) -> None:
        """A test has moved the clock on."""
        self._moved.set()
        self._moved = anyio.Event()
        for leader in self._leaders.values():
            leader.clock_moved()

    # Cleaning

    async def clean(self, owned: Callable[[ShardId], OwnedShard | None]) -> None:
        """Forget states whose time has passed, for ever."""
        pause = _FIRST_CLEAN
        while True:
            await anyio.sleep(pause)
            pause = _CLEAN_EVERY
            try:
                await self.clean_once(owned)
            except KitError as error:
                logger.warning("states that are over are not forgotten yet: %s", error)

    async def clean_once(self, owned: Callable[[ShardId], OwnedShard | None]) -> list[str]:
        """Forget states whose time has passed, where this runner owns the shard; return their names."""
        forgotten: list[str] = []
        timeout = self.attempt.total_seconds()
        for name, shard in await self.store.expired(timeout=timeout):
            held = owned(shard)
            if held is None or not held.is_held or name in self._leaders:
                continue
            holder = Holder(name, shard, held.fence, held.nonce)
            if await self.store.forget_expired(holder, timeout=timeout):
                logger.info("the state of singleton %s is forgotten: nobody has served it for its ttl", name)
                forgotten.append(name)
        return forgotten


def singleton_shard(group: str, name: str, shard_counts: Mapping[str, int]) -> ShardId:
    """Return the shard a singleton belongs to: who owns it leads."""
    return ShardId(group, shard_number("singleton", name, shard_counts[group]))
