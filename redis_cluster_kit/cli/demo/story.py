"""What happens in the demo, step by step, and what is promised meanwhile.

A step acts on the pods, waits for what must follow, and says what it saw. Each promise is measured where it
is at stake and judged at the end, by `promises`. A new act is one more step in `acts`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.observe import Snapshot

from .bank import ACCOUNTS, OPENING
from .books import Reckoning, reckon
from .customers import Customers
from .oversight import Oversight, auditor_in
from .pods import Pod, Pods
from .promises import Promise, audits, balance, fences, hand_off, none_of, one_effect, takeover, ticks
from .view import View
from .watching import Ending, Spread, Watcher, grants, hand_offs, strokes, waits

_SETTLE_WITHIN = 15.0
_EVEN_WITHIN = 5.0
_SHORTEST_LINGER = 0.3
_LONGEST_LINGER = 4.0
_FIRST_AUDIT_WITHIN = 15.0
_QUIET_WITHIN = 20.0
_HEARD_WITHIN = 5.0

Act = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Story:
    """One performance. `tell()` plays it; `promises` then holds what came of them."""

    pods: Pods
    watcher: Watcher
    customers: Customers
    oversight: Oversight
    view: View
    ttl: timedelta
    until: float
    """When it should end, on the boot clock."""
    with_kill: bool
    promises: list[Promise] = field(default_factory=list[Promise])
    takeover: Spread | None = None
    hand_off: Spread | None = None
    reckoning: Reckoning | None = None
    audit_gap: float | None = None
    """Seconds from the kill of the auditor's leader to the next audit."""
    ticks_done: int | None = None
    """How many ticks of the clock have ended well, as the database says in the end."""
    _unsettled: list[str] = field(default_factory=list[str])
    _disorderly: list[str] = field(default_factory=list[str])
    _orphaned: int = 0
    _audit_went_on: bool | None = None

    @property
    def takeover_limit(self) -> float:
        """Seconds within which the shards of a killed pod have a new owner: 10 at the default TTL."""
        return 2 * self.ttl.total_seconds()

    def acts(self) -> list[Act]:
        """Return the steps, in order."""
        deadly: list[Act] = [self._kill, self._replace] if self.with_kill else []
        return [self._share, self._open, *deadly, self._stop, self._close, self._end]

    async def tell(self) -> None:
        """Play all steps, with a pause after each so that the whole lasts as long as it should."""
        acts = self.acts()
        for place, act in enumerate(acts):
            await act()
            if place < len(acts) - 1:
                await self._linger(len(acts) - 1 - place)
        self.judge()

    # Steps

    async def _share(self) -> None:
        count = len(self.watcher.latest.shards)
        await self._settled("the pods share the shards")
        self.view.say(f"{len(self.pods.serving)} pods share {count} shards, each with a fence of its own")

    async def _open(self) -> None:
        self.customers.open()
        await self.oversight.until(lambda: self.oversight.audit.rounds > 0, within=_FIRST_AUDIT_WITHIN)
        leader = self._leader()
        self.view.say(
            f"the bank opens: {len(ACCOUNTS)} accounts hold {OPENING:,} each, customers ask for about "
            f"{self.customers.rate:g} transfers a second; {leader.name if leader else 'nobody'} leads the "
            "auditor"
        )

    async def _kill(self) -> None:
        leader = self._leader()
        victim = leader or self._richest()
        _, fence = auditor_in(self.watcher.latest)
        orphans = self._owned_by(victim)
        killed = await self.pods.kill(victim)
        leads = " and leads the auditor" if leader else ""
        self.view.say(
            f"{victim.name}, which serves {len(orphans)} shards{leads}, is killed with SIGKILL: they wait "
            f"for their leases to end, {self.ttl.total_seconds():g} s after the last renewal"
        )
        await self._settled(f"the shards of {victim.name} have new owners")
        ends = [Ending(shard, held, killed) for shard, held in orphans.items()]
        others = [pod for pod in self.pods.all if pod is not victim]
        # A pod that has just taken over has much to do, and tells of it a little later.
        await self.oversight.until(lambda: len(waits(ends, grants(others))) == len(orphans), _HEARD_WITHIN)
        found = waits(ends, grants(others))
        self._orphaned = len(orphans) - len(found)
        self.takeover = Spread.of(found.values())
        if self.takeover is not None:
            self.view.say(
                f"taken over: {self.takeover.shards} shards, the first after {self.takeover.first:.2f} s, "
                f"the last after {self.takeover.last:.2f} s"
            )
        if leader is not None:
            await self._see_next_audit(killed, fence)

    async def _see_next_audit(self, killed: float, fence: int) -> None:
        """The auditor has to go on with another leader; what its dead one saved last does not count."""
        seen = self.oversight
        await seen.until(lambda: seen.first_round_above(fence) is not None, _QUIET_WITHIN)
        saved, leader = seen.first_round_above(fence), self._leader()
        self._audit_went_on = saved is not None
        if saved is not None and leader is not None:
            self.audit_gap = saved - killed
            self.view.say(
                f"{leader.name} leads the auditor now, and saved its next round {self.audit_gap:.2f} s after "
                "the kill"
            )

    async def _replace(self) -> None:
        (newcomer,) = await self.pods.start()
        self.view.say(f"{newcomer.name} joins; the others hand it its share")
        await self._settled(f"{newcomer.name} has its share")

    async def _stop(self) -> None:
        leaver = self.pods.serving[0]  # the eldest: the newest has only just come
        owned = len(self._owned_by(leaver))
        self.view.say(
            f"{leaver.name} is told to go with SIGTERM: it gives its {owned} shards away, then goes"
        )
        if not await self.pods.stop(leaver):
            self._disorderly.append(leaver.name)
        await self._settled(f"the shards of {leaver.name} have new owners")
        self.hand_off = Spread.of(waits(hand_offs(self.pods.all), grants(self.pods.all)).values())
        if self.hand_off is not None:
            self.view.say(
                f"handed off: {self.hand_off.shards} times so far, each shard without an owner for "
                f"{self.hand_off.median * 1000:.0f} ms (median), {self.hand_off.last * 1000:.0f} ms at most"
            )

    async def _close(self) -> None:
        await self.customers.close()
        if not await self.oversight.quiet(_QUIET_WITHIN):
            self._unsettled.append("messages still wait after the bank has closed")
        self.reckoning = reckon(await self.customers.read_books(), self.customers.transfers)
        self.view.say(
            f"the bank closes: {self.reckoning.acknowledged:,} transfers were acknowledged; every book is "
            "read and compared with what customers were told"
        )

    async def _end(self) -> None:
        self.view.say("the curtain falls: everybody is told to go")
        before = {pod.name for pod in self.pods.serving}
        await self.pods.stop_all()
        self._disorderly += sorted(
            pod.name for pod in self.pods.all if pod.name in before and pod.child.returncode != 0
        )
        self.ticks_done = await self.oversight.ticks_done()

    # What is looked at

    def _richest(self) -> Pod:
        """The pod whose going is seen best."""
        return max(self.pods.serving, key=lambda pod: len(self._owned_by(pod)))

    def _leader(self) -> Pod | None:
        """The pod that serves and leads the auditor."""
        pod = self.pods.by_runner().get(auditor_in(self.watcher.latest)[0] or "")
        return pod if pod is not None and pod.state == "serving" else None

    def _owned_by(self, pod: Pod) -> dict[str, int]:
        """The pod's shards, each with the fence it holds."""
        return {
            str(sight.shard): sight.installed.fence
            for sight in self.watcher.latest.shards
            if sight.owner == pod.runner and sight.installed is not None
        }

    async def _settled(self, what: str) -> None:
        """Wait until those that serve own everything, which is promised, and then for an even spread."""
        if await self.watcher.until(self._is_owned, within=max(_SETTLE_WITHIN, self.takeover_limit)):
            await self.watcher.until(self._is_even, within=_EVEN_WITHIN)
        else:
            self._unsettled.append(f"{what} ({self._spread()})")

    def _spread(self) -> str:
        snapshot = self.watcher.latest
        owned = [f"{pod.name} {snapshot.owned_by(pod.runner)}" for pod in self.pods.all]
        return ", ".join([*owned, f"free {len(snapshot.free)}"])

    def _is_owned(self, snapshot: Snapshot) -> bool:
        runners = {pod.runner for pod in self.pods.serving}
        return all(
            sight.owner in runners
            and sight.installed is not None
            and sight.installed.runner_id == sight.owner
            for sight in snapshot.shards
        )

    def _is_even(self, snapshot: Snapshot) -> bool:
        most = math.ceil(len(snapshot.shards) / len(self.pods.serving))
        return self._is_owned(snapshot) and all(
            snapshot.owned_by(pod.runner) <= most for pod in self.pods.serving
        )

    async def _linger(self, pauses_left: int) -> None:
        left = self.until - Clock.boot()
        # The kill's wait is still to come while most pauses are: it takes a lease's time.
        ahead = self.ttl.total_seconds() if self.with_kill and self.takeover is None else 0.0
        await anyio.sleep(min(_LONGEST_LINGER, max(_SHORTEST_LINGER, (left - ahead) / (pauses_left + 1))))

    def judge(self) -> None:
        """Judge every promise that was at stake."""
        self.promises += [
            one_effect(self.reckoning, self.customers.different),
            balance(self.reckoning),
            audits(self.oversight.audit, self.oversight.steps_back, self._audit_went_on),
            ticks(strokes(self.pods.all), self.ticks_done),
        ]
        if self.with_kill:
            self.promises.append(takeover(self.takeover, self._orphaned, self.takeover_limit))
        self.promises += [
            hand_off(self.hand_off),
            fences(grants(self.pods.all), self.watcher.steps_back, self.watcher.looks),
            none_of(self._unsettled, "whatever happens, every shard finds an owner again", "always so"),
            none_of(self._disorderly, "a pod that is told to go leaves in order", "all exited with 0"),
        ]
