"""Who owned which shard when: one owner at a time, and no shard without one for too long.

Pure functions over ownership events or over the commits that the resource accepted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from .fences import Commit
from .verdict import Verdict, by


@dataclass(frozen=True, slots=True)
class OwnershipEvent:
    """A shard gained, kept, or given up by an owner."""

    shard: str
    owner: str
    kind: Literal["granted", "renewed", "released"]
    at: float
    until: float = math.inf
    """The local deadline of a lease granted or renewed: past it the owner holds nothing."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which an owner held a shard, or could commit to it."""

    shard: str
    owner: str
    begin: float
    end: float = math.inf


def ownership_spans(
    events: Iterable[OwnershipEvent], *, ends: Mapping[str, float] | None = None
) -> list[Span]:
    """Pair gains with losses: a release, a deadline that nobody moved, or an owner's end.

    `ends` says when an owner was killed or stopped. Give it to judge `recovery`; leave it out for
    `one_owner`, where a dead owner's lease counts until its deadline.
    """
    spans: list[Span] = []
    held: dict[tuple[str, str], Span] = {}
    for event in sorted(events, key=lambda e: e.at):
        key = (event.shard, event.owner)
        now = held.pop(key, None)
        if now is not None and (event.kind == "released" or now.end < event.at):
            spans.append(Span(*key, now.begin, min(now.end, event.at)))
            now = None
        if event.kind != "released":
            held[key] = Span(*key, event.at if now is None else now.begin, event.until)
    spans += held.values()
    return [_ended(span, (ends or {}).get(span.owner, math.inf)) for span in spans]


def _ended(span: Span, end: float) -> Span:
    # What an owner of that name gained after its end belongs to its next life.
    return Span(span.shard, span.owner, span.begin, min(span.end, end)) if span.begin <= end else span


def recovery(
    spans: Iterable[Span], *, shards: Collection[str], begin: float, until: float, bound: float
) -> Verdict:
    """I9: between two times no shard is without an owner for longer than the bound, nor at the end."""
    verdict = Verdict(examined={"shards": len(shards), "gaps": 0, "longest_gap": 0.0})
    owned = by(spans, lambda s: s.shard)
    for shard in shards:
        for start, end in _gaps(owned.get(shard, []), begin, until):
            verdict.examined["gaps"] += 1
            verdict.examined["longest_gap"] = max(verdict.examined["longest_gap"], end - start)
            if end - start > bound:
                text = f"shard {shard}: no owner for {end - start:.3f} s, allowed {bound} s"
                verdict.broken("I9", text, (start, end))
            elif end == until:
                verdict.broken("I9", f"shard {shard}: no owner at the end", (start, end))
    return verdict


def _gaps(spans: list[Span], begin: float, until: float) -> list[tuple[float, float]]:
    gaps: list[tuple[float, float]] = []
    covered = begin
    for span in sorted(spans, key=lambda s: s.begin):
        if span.begin >= until:
            break
        if span.begin > covered:
            gaps.append((covered, span.begin))
        covered = max(covered, span.end)
    if covered < until:
        gaps.append((covered, until))
    return gaps


def one_owner(spans: Iterable[Span]) -> Verdict:
    """I1, seen as time: no two owners of one shard at once. Touching ends do not overlap.

    For leases hand in spans with their deadlines (`OwnershipEvent.until`); for commits `commit_spans`. A
    paused owner that only believes it holds the shard breaks no promise: its span ends at its deadline.
    """
    verdict = Verdict(examined={"spans": 0, "neighbours": 0})
    for shard, rows in by(spans, lambda s: s.shard).items():
        verdict.examined["spans"] += len(rows)
        furthest: Span | None = None
        for span in sorted(rows, key=lambda s: (s.begin, s.end)):
            if furthest is not None and furthest.owner != span.owner:
                verdict.examined["neighbours"] += 1
                if span.begin < furthest.end:
                    text = f"shard {shard}: {furthest.owner} and {span.owner} at once"
                    verdict.broken("I1", text, furthest, span)
            if furthest is None or span.end > furthest.end:
                furthest = span
    return verdict


def commit_spans(commits: Iterable[Commit]) -> list[Span]:
    """Return, per resource and owner (nonce), the time from its first to its last accepted commit."""
    groups = by(commits, lambda c: (c.resource, c.nonce))
    return [
        Span(resource, nonce, min(c.completed_at for c in rows), max(c.completed_at for c in rows))
        for (resource, nonce), rows in groups.items()
    ]
