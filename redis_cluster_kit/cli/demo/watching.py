"""What can be seen of the demo: snapshots from outside, and the grants and strokes that the pods tell of.

A snapshot says who owns what now and which fence is installed; the grants say when each shard changed hands,
and the strokes of the bank's clock which seconds had a tick.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import anyio

from redis_cluster_kit.cli.stores import ClusterSide
from redis_cluster_kit.errors import PersistenceFailedError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.observe import Snapshot

from .pods import Pod

LOOK_EVERY = 0.1


class Grant(NamedTuple):
    """A shard given to a pod, at a time on the boot clock."""

    at: float
    shard: str
    fence: int
    pod: int


class Stroke(NamedTuple):
    """The bank's clock struck: a second since 1970, in which attempt of its tick, on which pod."""

    at: int
    attempt: int
    pod: int


class Ending(NamedTuple):
    """The end of a shard's ownership: which fence it was, and when it ended on the boot clock."""

    shard: str
    fence: int
    at: float


@dataclass(slots=True)
class Watcher:
    """Looks again and again; keeps the last look and what it has seen of the fences."""

    side: ClusterSide
    latest: Snapshot
    looks: int = 1
    steps_back: list[str] = field(default_factory=list[str])
    """Fences that went back from one look to a later one: there must be none."""
    _highest: dict[ShardId, int] = field(default_factory=dict[ShardId, int])

    async def watch(self) -> None:
        """Look until cancelled; a look that fails is left out."""
        while True:
            await anyio.sleep(LOOK_EVERY)
            try:
                self.latest = await self.side.look()
            except PersistenceFailedError:
                continue
            self.looks += 1
            self._compare()

    async def until(self, fact: Callable[[Snapshot], bool], within: float) -> bool:
        """Wait for something to be seen; return whether it was, in time."""
        with anyio.move_on_after(within):
            while not fact(self.latest):  # noqa: ASYNC110 - looks come by time, an event would change nothing
                await anyio.sleep(LOOK_EVERY / 2)
            return True
        return False

    def _compare(self) -> None:
        for sight in self.latest.shards:
            fence = 0 if sight.installed is None else sight.installed.fence
            before = self._highest.get(sight.shard, 0)
            if fence < before:
                self.steps_back.append(f"{sight.shard}: {before} then {fence}")
            self._highest[sight.shard] = max(before, fence)


def grants(pods: Iterable[Pod]) -> list[Grant]:
    """Return every grant the pods told of, in order of time."""
    return sorted(
        Grant(event.t_boot, event["shard"], event["fence"], pod.number)
        for pod in pods
        for event in pod.child.events
        if event.name == "gained"
    )


def hand_offs(pods: Iterable[Pod]) -> list[Ending]:
    """Return every shard that pods told of having given away."""
    return [
        Ending(event["shard"], event["fence"], event.t_boot)
        for pod in pods
        for event in pod.child.events
        if event.name == "lost" and event["clean"]
    ]


def strokes(pods: Iterable[Pod]) -> list[Stroke]:
    """Return every stroke of the clock that pods told of, in order of their seconds."""
    return sorted(
        Stroke(event["at"], event["attempt"], pod.number)
        for pod in pods
        for event in pod.child.events
        if event.name == "struck"
    )


def unordered(given: Iterable[Grant]) -> tuple[int, list[str]]:
    """Return how many grants followed another of the same shard, and those without a higher fence."""
    last: dict[str, Grant] = {}
    pairs, wrong = 0, list[str]()
    for grant in sorted(given):
        before = last.get(grant.shard)
        last[grant.shard] = grant
        if before is not None:
            pairs += 1
            if grant.fence <= before.fence:
                wrong.append(f"{grant.shard}: {before.fence} then {grant.fence}")
    return pairs, wrong


def waits(endings: Iterable[Ending], given: Iterable[Grant]) -> dict[Ending, float]:
    """Return the seconds from each end to the next owner's grant; without one it is left out.

    The next owner is the one with the next fence, not the one that was heard of next: it may tell of its
    grant before the other tells of its loss. That counts as no wait at all.
    """
    later: dict[str, list[Grant]] = {}
    for grant in sorted(given, key=lambda one: one.fence):
        later.setdefault(grant.shard, []).append(grant)
    found: dict[Ending, float] = {}
    for end in endings:
        following = next((one for one in later.get(end.shard, ()) if one.fence > end.fence), None)
        if following is not None:
            found[end] = max(0.0, following.at - end.at)
    return found


class Spread(NamedTuple):
    """How long the shards of one step waited, in seconds."""

    shards: int
    first: float
    median: float
    last: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Spread | None:
        """Return the spread of these, None if there are none."""
        found = sorted(seconds)
        if not found:
            return None
        return cls(len(found), found[0], statistics.median(found), found[-1])
