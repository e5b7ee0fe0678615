"""Fences: never repeated, never going back, and nothing committed under one that is past.

Pure functions over grants, installs, commits and loads; where the rows come from is the caller's affair.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .verdict import Verdict, by


@dataclass(frozen=True, slots=True)
class Grant:
    """A fence handed out for a shard, with when it was asked for and when it was there."""

    shard: str
    fence: int
    nonce: str
    invoked_at: float
    completed_at: float


@dataclass(frozen=True, slots=True)
class Install:
    """A fence that a resource took as its own."""

    resource: str
    fence: int
    nonce: str
    invoked_at: float
    completed_at: float


@dataclass(frozen=True, slots=True)
class Commit:
    """A fenced write that the resource accepted."""

    resource: str
    fence: int
    nonce: str
    version: int = 0
    completed_at: float = 0.0
    """When it was known to be done."""
    invoked_at: float = -math.inf
    """When it was asked for; if that is not known, `no_stale_commit` cannot judge it."""


@dataclass(frozen=True, slots=True)
class Load:
    """State read by a new owner, after its fence was installed."""

    resource: str
    fence: int
    version: int
    invoked_at: float


class _Fenced(Protocol):
    @property
    def fence(self) -> int: ...
    @property
    def nonce(self) -> str: ...
    @property
    def completed_at(self) -> float: ...


def commit_fences(commits: Iterable[Commit]) -> Verdict:
    """I1: per resource, in the order given, fences never go back and each has one nonce.

    The order must be the resource's own (its append-only table, its stream): what clients say they saw is not
    in that order, and is judged by `no_stale_commit`.
    """
    verdict = Verdict(examined={"commits": 0, "fence_changes": 0})
    for resource, rows in by(commits, lambda c: c.resource).items():
        verdict.examined["commits"] += len(rows)
        _one_nonce_each(verdict, resource, rows)
        highest = rows[0]
        for commit in rows:
            if commit.fence < highest.fence:
                text = f"{resource}: fence {commit.fence} committed after {highest.fence}"
                verdict.broken("I1", text, highest, commit)
            elif commit.fence > highest.fence:
                verdict.examined["fence_changes"] += 1
                highest = commit
    return verdict


def no_stale_commit(installs: Iterable[Install], commits: Iterable[Commit]) -> Verdict:
    """I1: nothing asked for after a newer fence was installed (or committed with) is accepted under an older.

    Sound for what clients saw: only what was surely later is judged. `ordered_pairs` counts the pairs that
    had an order to respect, `fence_changes` the fences after each resource's first.
    """
    verdict = Verdict(examined={"installs": 0, "commits": 0, "ordered_pairs": 0, "fence_changes": 0})
    installed = by(installs, lambda i: i.resource)
    for resource, rows in by(commits, lambda c: c.resource).items():
        before = installed.get(resource, [])
        verdict.examined["installs"] += len(before)
        verdict.examined["commits"] += len(rows)
        both: list[_Fenced] = [*before, *rows]
        verdict.examined["fence_changes"] += len({row.fence for row in both}) - 1
        _one_nonce_each(verdict, resource, both)
        past = _highest_by_time(both)
        for commit in rows:
            number, highest = _before(past, commit.invoked_at)
            verdict.examined["ordered_pairs"] += number
            if highest is not None and highest.fence > commit.fence:
                text = f"{resource}: committed under fence {commit.fence} after {highest.fence} was installed"
                verdict.broken("I1", text, highest, commit)
    return verdict


def fences_increase(grants: Iterable[Grant]) -> Verdict:
    """I5: of two grants, one complete before the other was asked for, the later has the higher fence.

    No two grants of a shard share a fence at all. `ordered_pairs` counts the pairs that had an order to
    respect.
    """
    verdict = Verdict(examined={"grants": 0, "ordered_pairs": 0})
    for shard, rows in by(grants, lambda g: g.shard).items():
        verdict.examined["grants"] += len(rows)
        for fence, twins in by(rows, lambda g: g.fence).items():
            if len(twins) > 1:
                verdict.broken("I5", f"shard {shard}: fence {fence} granted {len(twins)} times", *twins)
        past = _highest_by_time(rows)
        for grant in rows:
            number, earlier = _before(past, grant.invoked_at)
            verdict.examined["ordered_pairs"] += number
            if earlier is not None and earlier.fence > grant.fence:
                text = f"shard {shard}: fence {grant.fence} granted after {earlier.fence}"
                verdict.broken("I5", text, earlier, grant)
    return verdict


def takeover_state(commits: Iterable[Commit], loads: Iterable[Load]) -> Verdict:
    """I8: a new owner reads at least the last version committed before it asked, or under a lower fence."""
    verdict = Verdict(examined={"loads": 0, "compared": 0})
    known = by(commits, lambda c: c.resource)
    for load in loads:
        verdict.examined["loads"] += 1
        rows = known.get(load.resource, ())
        past = [c for c in rows if c.completed_at < load.invoked_at or c.fence < load.fence]
        if not past:
            continue
        verdict.examined["compared"] += 1
        last = max(past, key=lambda c: c.version)
        if load.version < last.version:
            text = f"{load.resource}: version {load.version} read, {last.version} was committed"
            verdict.broken("I8", text, last, load)
    return verdict


def _one_nonce_each(verdict: Verdict, resource: str, rows: Sequence[_Fenced]) -> None:
    for fence, twins in by(rows, lambda row: row.fence).items():
        first = twins[0]
        for other in twins:
            if other.nonce != first.nonce:
                verdict.broken("I1", f"{resource}: two nonces at fence {fence}", first, other)
                break


def _highest_by_time(rows: Iterable[_Fenced]) -> tuple[list[float], list[_Fenced]]:
    """Return when each row was done, in order, and the highest fence of all rows done by then."""
    done = sorted(rows, key=lambda row: row.completed_at)
    highest = itertools.accumulate(done, _higher)
    return [row.completed_at for row in done], list(highest)


def _higher(one: _Fenced, other: _Fenced) -> _Fenced:
    return one if one.fence >= other.fence else other


def _before(past: tuple[list[float], list[_Fenced]], time: float) -> tuple[int, _Fenced | None]:
    """Return how many rows were done before a time, and the highest of them."""
    ends, highest = past
    number = bisect.bisect_left(ends, time)
    return number, highest[number - 1] if number else None
