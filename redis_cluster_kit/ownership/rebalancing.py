"""Ownership at work: one runner takes the shards it should own, keeps them, and hands them off.

Every loop here may fail at any time and goes on: what one round misses the next one finds. Nothing here
protects a write; leases only say who should write, fences decide who can.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
from anyio.abc import TaskGroup

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.errors import PersistenceFailedError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.settings import LeaseSettings

from .events import ClusterEvent, RunnerJoined, RunnerLeft, ShardGained, ShardLost
from .fences import FenceKeys, FenceSource, Installed
from .holding import OwnedShard, ShardWork
from .inbox import Inbox
from .lease import LeaseNodes
from .membership import Member, Membership
from .plan import incomparable_types, plan_shards

logger = logging.getLogger(__name__)

CHECK_EVERY = 0.5
_KEEP_RESCUED = 4
"""For how many TTLs a shard is kept that its planned owner did not take; then that one may try again."""
_MOST_DOUBLINGS = 6
_LEAVE_TIMEOUT = 2.0


class Ownership:
    """The shards of one runner. `running()` joins, takes its share and gives everything back at the end."""

    def __init__(
        self,
        *,
        groups: Mapping[str, int],
        settings: LeaseSettings,
        budget: timedelta,
        clock: Clock,
        leases: LeaseNodes,
        keys: FenceKeys,
        fences: FenceSource,
        membership: Membership,
        inbox: Inbox,
        serve: ShardWork,
        publish: Callable[[ClusterEvent], None],
    ) -> None:
        self._shards = [ShardId(group, number) for group, count in groups.items() for number in range(count)]
        self._groups = dict(groups)
        self._settings = settings
        self._budget = budget.total_seconds()
        self._ttl = settings.ttl.total_seconds()
        self._clock = clock
        self._leases = leases
        self._keys = keys
        self._fences = fences
        self._membership = membership
        self._inbox = inbox
        self._serve = serve
        self._publish = publish
        self._runner_id = membership.me.runner_id
        self._owned: dict[ShardId, OwnedShard] = {}
        self._closing: dict[ShardId, tuple[OwnedShard, bool]] = {}
        self._plan: dict[ShardId, str] = {}
        self._planned_for: Mapping[str, Member] | None = None
        self._is_plan_stale = False
        self._free_since: dict[ShardId, float] = {}
        self._orphans: frozenset[ShardId] = frozenset()
        self._rescues: Counter[ShardId] = Counter()
        self._kept_until: dict[ShardId, float] = {}
        self._next_survey = 0.0
        self._failed_takes = 0
        self._take_after = 0.0
        self._wake = anyio.Event()
        self._ended = anyio.Event()
        self._emptied = anyio.Event()
        self._tasks: TaskGroup | None = None
        self.is_draining = False
        self._is_abandoned = False
        self.trouble: dict[str, str] = {}
        """What does not work at the moment, by the round that met it; empty when all is well."""

    @property
    def owned(self) -> Mapping[ShardId, OwnedShard]:
        """The shards this runner owns now."""
        return self._owned

    @property
    def is_placed(self) -> bool:
        """Whether this runner knows its share yet; before that nothing counts as missing."""
        return self._planned_for is not None

    @property
    def missing(self) -> list[ShardId]:
        """The shards this runner should own and does not."""
        return [
            shard for shard, who in self._plan.items() if who == self._runner_id and shard not in self._owned
        ]

    @property
    def incomparable_groups(self) -> list[str]:
        """Groups whose runners serve types that do not contain one another."""
        return incomparable_types(self._membership.members)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Be a member and own shards; at the end all are handed off, as far as the stores can be reached."""
        await self._membership.join()
        await self._membership.refresh()
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            rounds: list[tuple[str, float, Callable[[], Awaitable[None]]]] = [
                ("membership", self._ttl / 3, self._beat),
                ("leases", self._ttl / 3, self._renew),
                ("shards", self._settings.look_every.total_seconds(), self._look),
                ("fences", CHECK_EVERY, self._check),
                ("release", self._ttl, self._release),
            ]
            for name, every, do in rounds:
                tasks.start_soon(self._repeat, name, every, do)
            await self._nudge_others("members")
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    if not self._is_abandoned:
                        await self.drain()
                    tasks.cancel_scope.cancel()
        if self._is_abandoned:
            return
        with anyio.CancelScope(shield=True), anyio.move_on_after(_LEAVE_TIMEOUT):
            await self._leave()

    async def drain(self) -> None:
        """Give every shard away; returns when none is left, after the budget at the latest."""
        await self.begin_drain()
        with anyio.move_on_after(self._budget + self._ttl):
            while self._owned or self._closing:
                self._emptied = anyio.Event()
                await self._emptied.wait()

    def abandon(self) -> None:
        """Give nothing back from now on: a test kills this runner."""
        self._is_abandoned = True

    def drain_soon(self) -> None:
        """Begin the drain in the background."""
        if self._tasks is not None:
            self._tasks.start_soon(self.begin_drain)

    async def begin_drain(self) -> None:
        """Tell the others that this runner goes, and begin every hand-off."""
        if self.is_draining:
            return
        self.is_draining = True
        with anyio.move_on_after(_LEAVE_TIMEOUT):
            try:
                await self._membership.drain()
                await self._nudge_others("members")
                # A look of our own: hand-offs are nudged to whoever gets the shards.
                await self._membership.refresh()
                await self._replan()
            except PersistenceFailedError as error:
                logger.warning("draining without telling the others: %s", error)
        for owned in list(self._owned.values()):
            owned.end(self._budget)

    # Rounds

    async def _repeat(self, name: str, every: float, do: Callable[[], Awaitable[None]]) -> None:
        """Run a round again and again. A failure is kept in `trouble` until a round succeeds."""
        while True:
            started = Clock.boot()
            pause = every
            try:
                await do()
            except PersistenceFailedError as error:
                self._note(name, str(error))
                pause = min(every, self._ttl / 10) or 0.1
            except Exception as error:
                # A round that stops for good would lose every shard in silence.
                logger.exception("the %s round failed", name)
                self._note(name, f"{type(error).__name__}: {error}")
                pause = max(every, 0.5)
            else:
                self.trouble.pop(name, None)
            await self._pause(name, max(0.0, pause - (Clock.boot() - started)))

    async def _pause(self, name: str, seconds: float) -> None:
        if name == "release":
            await self._ended.wait()
            self._ended = anyio.Event()
        elif name == "shards":
            with anyio.move_on_after(seconds):
                await self._wake.wait()
            self._wake = anyio.Event()
        else:
            await anyio.sleep(seconds)

    def _note(self, name: str, text: str) -> None:
        if name not in self.trouble:
            logger.warning("%s: %s", name, text)
        self.trouble[name] = text

    async def _beat(self) -> None:
        """Stay a member."""
        before = self._membership.members
        if await self._membership.heartbeat():
            self._members_changed(before)
            self._wake.set()

    async def _renew(self) -> None:
        """Prolong the leases of everything owned or being given back."""
        held = {**{shard: owned for shard, (owned, _) in self._closing.items()}, **self._owned}
        if not held:
            return
        renewal = await self._leases.renew(held)
        for shard, deadline in renewal.renewed.items():
            held[shard].extend(deadline)
        for shard in renewal.lost:
            held[shard].lose("its lease was lost")
        if len(renewal.renewed) + len(renewal.lost) < len(held):
            raise self._leases.too_few()

    async def _look(self) -> None:
        """See who is there, plan anew if that changed, and take what is missing."""
        before = self._membership.members
        if await self._membership.refresh():
            self._members_changed(before)
        if self._runner_id not in self._membership.members:
            await self._membership.heartbeat()
        if self._is_plan_stale or self._planned_for is not self._membership.members:
            self._is_plan_stale = False
            await self._replan()
        await self._give_away()
        if Clock.boot() >= self._next_survey:
            self._next_survey = Clock.boot() + self._ttl / 3
            await self._survey()
        await self._take_missing()

    async def _check(self) -> None:
        """See whether the installed fences are still ours: a store that forgot is noticed here."""
        held = dict(self._owned)
        if not held:
            return
        answers = await self._keys.check({shard: owned.fence for shard, owned in held.items()})
        for shard, word in answers.items():
            if word != "ok":
                held[shard].lose(f"its fence is {word}")

    def wake(self, _: object = None) -> None:
        """Look for shards now: somebody nudged."""
        self._wake.set()

    def replan(self, _: object = None) -> None:
        """Place every shard anew, soon: what one of them wants has changed."""
        self._is_plan_stale = True
        self._wake.set()

    async def call_for_placement(self) -> None:
        """Let everybody place anew: a shard here wants what this runner does not serve."""
        self.replan()
        await self._nudge_others("wants")

    # Taking

    async def _take_missing(self) -> None:
        if self.is_draining or Clock.boot() < self._take_after:
            return
        wanted = [shard for shard in {*self.missing, *self._orphans} if self._is_untouched(shard)]
        if wanted:
            await self._take(wanted)
        else:
            self.trouble.pop("fence grants", None)

    def _is_untouched(self, shard: ShardId) -> bool:
        return shard not in self._owned and shard not in self._closing

    async def _take(self, shards: Iterable[ShardId]) -> None:
        """Lease, then fence: a shard is ours only with both."""
        wanted = list(shards)
        try:
            await self._lease_and_fence(wanted)
        except anyio.get_cancelled_exc_class():
            # Leaving meanwhile: a lease that nobody uses would keep the next owner away until it ends.
            with anyio.CancelScope(shield=True):
                await self._leases.release(shard for shard in wanted if self._is_untouched(shard))
            raise

    async def _lease_and_fence(self, shards: Iterable[ShardId]) -> None:
        started = Clock.boot()
        deadlines = await self._leases.acquire(shards)
        if not deadlines:
            return
        fences: dict[ShardId, int] = {}
        try:
            fences = await self._fences.establish(
                deadlines, timeout=max(0.001, self._ttl / 3 - (Clock.boot() - started))
            )
        except (PersistenceFailedError, TimeoutError) as error:
            self._note("fence grants", str(error) or "no fence within a third of the TTL")
        else:
            self.trouble.pop("fence grants", None)
        for shard, fence in fences.items():
            if Clock.boot() < deadlines[shard] and not self.is_draining:
                self._begin(OwnedShard(shard, fence, self._keys.nonce, deadlines[shard]))
        unused = [shard for shard in deadlines if shard not in self._owned]
        if unused:
            await self._leases.release(unused)
        self._back_off(failed=not fences)

    def _back_off(self, *, failed: bool) -> None:
        self._failed_takes = self._failed_takes + 1 if failed else 0
        if failed:
            most = min(self._ttl, 0.1 * 2 ** min(self._failed_takes, _MOST_DOUBLINGS))
            self._take_after = Clock.boot() + random.uniform(most / 2, most)

    def _begin(self, owned: OwnedShard) -> None:
        assert self._tasks is not None
        self._owned[owned.shard] = owned
        if self._is_elsewhere(owned.shard):
            self._note_rescue(owned.shard)
        self._publish(ShardGained(owned.shard, owned.fence))
        self._tasks.start_soon(self._hold, owned)

    # Holding and giving back

    async def _hold(self, owned: OwnedShard) -> None:
        """Let the work run as long as the shard is ours; whatever ends it, the shard is given back."""
        was_clean = False
        try:
            was_clean = await owned.run(self._serve)
        except Exception:
            logger.exception("the work of shard %s failed", owned.shard)
            owned.lose("its work failed")
            self._back_off(failed=True)
        finally:
            reason = owned.loss or ("handed off" if was_clean else "not done within the drain budget")
            del self._owned[owned.shard]
            self._closing[owned.shard] = (owned, was_clean)
            self._publish(ShardLost(owned.shard, owned.fence, was_clean, reason))
            self._ended.set()

    async def _release(self) -> None:
        """Note which fences ended cleanly, release the leases, wake who comes next."""
        batch = dict(self._closing)
        if not batch:
            return
        successors = {self._plan.get(shard, self._runner_id) for shard in batch} - {self._runner_id}
        try:
            clean = {shard: owned.fence for shard, (owned, was_clean) in batch.items() if was_clean}
            if clean:
                await self._keys.close(clean)
        except PersistenceFailedError as error:
            # No reason to be unready: the fences stand, only that they ended cleanly is not known.
            logger.warning("the clean end of %d fences was not noted: %s", len(batch), error)
        finally:
            await self._leases.release(batch)
            for shard in batch:
                self._closing.pop(shard, None)
            self._wake.set()
            self._emptied.set()
        try:
            await self._inbox.nudge(successors & self._membership.members.keys(), "free")
        except PersistenceFailedError as error:
            logger.warning("nobody was nudged to take %d shards: %s", len(batch), error)

    # Seeing

    async def _replan(self) -> None:
        """Place every shard anew."""
        members = self._membership.members
        installed: Mapping[ShardId, Installed | None] = await self._keys.survey(self._shards)
        self._plan = plan_shards(self._groups, members, installed, self._clock.now_ms())
        if self._planned_for is not members:
            self._planned_for = members
            self._rescues.clear()
            self._kept_until.clear()

    async def _give_away(self) -> None:
        """Begin to hand off what belongs elsewhere, if anybody can take it: a grant needs the database."""
        now = Clock.boot()
        misplaced = [
            owned
            for shard, owned in self._owned.items()
            if self._is_elsewhere(shard)
            and not owned.ending.is_set()
            and now >= self._kept_until.get(shard, now)
        ]
        if misplaced and await self._fences.can_grant(timeout=self._ttl / 3):
            for owned in misplaced:
                owned.end(self._budget)

    def _is_elsewhere(self, shard: ShardId) -> bool:
        return self._plan.get(shard, self._runner_id) != self._runner_id

    async def _survey(self) -> None:
        """Look for shards that stay free although somebody should own them; anyone may take those.

        Free for a whole TTL, and seen so by every look in between: one that failed begins the count anew, or
        an outage that frees every shard would let whoever comes first take all of them.
        """
        seen, self._free_since, self._orphans = self._free_since, {}, frozenset()
        owners = await self._leases.owners(self._shards)
        now = Clock.boot()
        self._free_since = {shard: seen.get(shard, now) for shard, who in owners.items() if who is None}
        self._orphans = frozenset(
            shard for shard, since in self._free_since.items() if now - since >= self._ttl
        )
        # Two runners that read a shard's wants at different moments may each think that it is the other's.
        self._is_plan_stale = self._is_plan_stale or bool(self._orphans)

    def _note_rescue(self, shard: ShardId) -> None:
        """Keep it longer each time: its planned owner seems to be a member, and yet not able to take it."""
        keep = self._ttl * _KEEP_RESCUED * 2 ** min(self._rescues[shard], _MOST_DOUBLINGS)
        self._rescues[shard] += 1
        self._kept_until[shard] = Clock.boot() + keep

    def _members_changed(self, before: Mapping[str, Member]) -> None:
        now = self._membership.members
        for runner_id in sorted(now.keys() - before.keys()):
            self._publish(RunnerJoined(runner_id))
        for runner_id in sorted(before.keys() - now.keys()):
            self._publish(RunnerLeft(runner_id))

    async def _nudge_others(self, about: str) -> None:
        await self._inbox.nudge(self._membership.members.keys() - {self._runner_id}, about)

    async def _leave(self) -> None:
        try:
            await self._leases.release(self._closing)
            await self._membership.leave()
            await self._nudge_others("members")
        except PersistenceFailedError as error:
            logger.warning("leaving without telling the others, the membership ends by itself: %s", error)
