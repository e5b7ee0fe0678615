"""Placement: which runner should own which shard. A pure function, the same in every process.

Weighted rendezvous hashing with exact shares: every (shard, runner) pair has a score, pairs are taken from
the highest down, and nobody gets more than its share rounded up. A shard that wants types goes only where
they are served.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_SPAN = float(2**64)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A runner that may own shards of a group: its weight, and the types it serves there."""

    runner_id: str
    weight: float = 1.0
    serves: frozenset[str] = frozenset()


def assign(
    group: str, count: int, runners: Sequence[Candidate], wants: Mapping[int, frozenset[str]] | None = None
) -> dict[int, str]:
    """Return the owner each shard of the group should have; empty without runners."""
    if not runners:
        return {}
    ordered = sorted(runners, key=lambda runner: runner.runner_id)
    shares = _Shares(ordered, count)
    eligible = {shard: _eligible(ordered, wanted) for shard, wanted in (wants or {}).items() if shard < count}
    bound = {shard: able for shard, able in eligible.items() if len(able) < len(ordered)}
    placed = _place(group, {shard: bound[shard] for shard in sorted(bound)}, shares, {})
    free = {shard: ordered for shard in range(count) if shard not in bound}
    return _place(group, free, shares, placed)


class _Shares:
    """How many shards each runner may still get: its fair share, rounded up while there is a remainder."""

    def __init__(self, runners: Sequence[Candidate], count: int) -> None:
        total = math.fsum(runner.weight for runner in runners)
        self._fair = {runner.runner_id: count * runner.weight / total for runner in runners}
        self._given = dict.fromkeys(self._fair, 0)
        self._spare = count - sum(math.floor(fair) for fair in self._fair.values())

    def take(self, runner_id: str) -> bool:
        """Give the runner one shard more, if its share allows it."""
        given, fair = self._given[runner_id], self._fair[runner_id]
        if given >= math.floor(fair):
            if given >= math.ceil(fair) or self._spare <= 0:
                return False
            self._spare -= 1
        self._given[runner_id] = given + 1
        return True

    def force(self, runners: Sequence[Candidate]) -> str:
        """Give one more to whoever of `runners` is furthest below its share: serving comes before balance."""
        chosen = min(
            runners, key=lambda runner: self._given[runner.runner_id] - self._fair[runner.runner_id]
        ).runner_id
        self._given[chosen] += 1
        return chosen


def _eligible(runners: Sequence[Candidate], wanted: frozenset[str]) -> list[Candidate]:
    """Return those that serve most of what is wanted: all of it, if anybody does."""
    served = [len(runner.serves & wanted) for runner in runners]
    most = max(served)
    return [runner for runner, number in zip(runners, served, strict=True) if number == most]


def _place(
    group: str, shards: Mapping[int, Sequence[Candidate]], shares: _Shares, placed: dict[int, str]
) -> dict[int, str]:
    pairs = [
        (-_score(group, shard, runner), shard, runner.runner_id)
        for shard, able in shards.items()
        for runner in able
    ]
    pairs.sort()
    for _, shard, runner_id in pairs:
        if shard not in placed and shares.take(runner_id):
            placed[shard] = runner_id
    for shard, able in shards.items():
        if shard not in placed:
            placed[shard] = shares.force(able)
    return placed


def _score(group: str, shard: int, runner: Candidate) -> float:
    digest = hashlib.blake2b(f"{runner.runner_id}\0{group}\0{shard}".encode(), digest_size=8).digest()
    uniform = (int.from_bytes(digest, "big") + 0.5) / _SPAN
    return -runner.weight / math.log(uniform) if uniform < 1.0 else math.inf
