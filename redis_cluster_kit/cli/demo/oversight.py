"""What can be seen of the bank from outside while it is open: how much waits, and what the auditor saves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.cluster import Cluster
from redis_cluster_kit.entity import SingletonState
from redis_cluster_kit.errors import PersistenceFailedError, StateLoadFailedError
from redis_cluster_kit.identity import ShardId, shard_number
from redis_cluster_kit.observe import Snapshot

from .bank import AUDITOR, CLOCK, Audit

_LOOK_EVERY = 0.2


@dataclass(slots=True)
class Oversight:
    """Looks again and again; keeps the last look."""

    cluster: Cluster
    waiting: int = 0
    """Messages in mailboxes: waiting, or with a handler."""
    audit: Audit = field(default_factory=Audit)
    version: int = 0
    rounds: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    """Each round that was seen: its leader's fence, and when it was saved, on the boot clock."""
    steps_back: list[str] = field(default_factory=list[str])
    """Audits that were older than one seen before: there must be none."""

    async def watch(self) -> None:
        """Look until cancelled; a look that fails is left out."""
        while True:
            await anyio.sleep(_LOOK_EVERY)
            try:
                self.waiting = await self._count()
                found = await self.cluster.singleton_state(AUDITOR, Audit)
            except (PersistenceFailedError, StateLoadFailedError):
                continue
            if found is not None:
                self._take(found)

    def first_round_above(self, fence: int) -> float | None:
        """Return when a leader with a higher fence saved its first round, None if none was seen yet."""
        return next((saved for theirs, saved in self.rounds if theirs > fence), None)

    async def until(self, fact: Callable[[], bool], within: float) -> bool:
        """Wait for something to be seen; return whether it was, in time."""
        with anyio.move_on_after(within):
            while not fact():  # noqa: ASYNC110 - looks come by time, an event would change nothing
                await anyio.sleep(_LOOK_EVERY / 4)
            return True
        return False

    async def ticks_done(self) -> int:
        """Return how many ticks of the clock have ended well."""
        return sum(cron.run_count for cron in await self.cluster.crons.list() if cron.name == CLOCK)

    async def quiet(self, within: float) -> bool:
        """Wait until no message waits or is on its way anywhere; return whether that came to be in time."""
        mailboxes = self.cluster.joined_runner().messaging.mailboxes
        with anyio.move_on_after(within):
            while not all(await asyncio.gather(*map(mailboxes.is_quiet, self._shards()))):  # noqa: ASYNC110
                await anyio.sleep(_LOOK_EVERY / 4)
            return True
        return False

    def _take(self, found: SingletonState[Audit]) -> None:
        if found.version < self.version:
            self.steps_back.append(f"version {self.version}, then {found.version}")
        if found.state.rounds > self.audit.rounds:
            self.rounds.append((found.state.fence, Clock.boot() - found.age.total_seconds()))
        self.audit, self.version = found.state, found.version

    async def _count(self) -> int:
        mailboxes = self.cluster.joined_runner().messaging.mailboxes
        counts = await asyncio.gather(*map(mailboxes.count, self._shards()))
        return sum(waiting for waiting, _ in counts)

    def _shards(self) -> list[ShardId]:
        record = self.cluster.joined_runner().record
        assert record is not None
        return [
            ShardId(group, number) for group, count in record.shard_counts.items() for number in range(count)
        ]


def auditor_in(snapshot: Snapshot) -> tuple[str | None, int]:
    """Return who leads the auditor, which is whoever owns its shard, and under which fence."""
    count = snapshot.record.shard_counts.get("default", 0)
    shard = ShardId("default", shard_number("singleton", AUDITOR, count)) if count else None
    sight = next((sight for sight in snapshot.shards if sight.shard == shard), None)
    if sight is None:
        return None, 0
    return sight.owner, 0 if sight.installed is None else sight.installed.fence
