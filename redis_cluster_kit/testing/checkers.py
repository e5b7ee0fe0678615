"""Judges over what happened: each takes rows, returns the invariants broken and how much it looked at.

Pure functions. The numbers I1–I9 are those of the fault tests. A verdict without violations that examined
nothing proves nothing, hence `Verdict.require(...)`. Where the rows come from is the caller's affair.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias, TypeVar

from .history import RegisterOperation

T = TypeVar("T")
Tick: TypeAlias = tuple[str, Any]
"""A cron's name and its instant, in any form that sorts and is equal for equal instants."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise: which, what happened, and the rows that show it."""

    invariant: str
    text: str
    evidence: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


class InvariantBrokenError(AssertionError):
    """A verdict with violations, or one that looked at too little to mean anything."""


@dataclass(slots=True)
class Verdict:
    """What a checker found, and how much it examined."""

    violations: list[Violation] = field(default_factory=list[Violation])
    examined: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def invariants(self) -> set[str]:
        """The invariants that were broken."""
        return {violation.invariant for violation in self.violations}

    def require(self, **at_least: float) -> Self:
        """Raise unless nothing is broken and at least so much was examined: `require(ordered_pairs=100)`."""
        if self.violations:
            shown = "\n".join(f"{v}  {v.evidence}" for v in self.violations[:10])
            raise InvariantBrokenError(
                f"{len(self.violations)} violations; examined {self.examined}\n{shown}"
            )
        short = {name: got for name, least in at_least.items() if (got := self.examined.get(name, 0)) < least}
        if short:
            raise InvariantBrokenError(f"expected to examine at least {at_least}, examined only {short}")
        return self

    def broken(self, invariant: str, text: str, *evidence: Any) -> None:
        """Add a violation."""
        self.violations.append(Violation(invariant, text, evidence))


def together(*verdicts: Verdict) -> Verdict:
    """Join verdicts; counts of the same name are added."""
    joined = Verdict()
    for verdict in verdicts:
        joined.violations += verdict.violations
        for name, number in verdict.examined.items():
            joined.examined[name] = joined.examined.get(name, 0) + number
    return joined


def _by(rows: Iterable[T], key: Callable[[T], Hashable]) -> dict[Any, list[T]]:
    groups: defaultdict[Any, list[T]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return dict(groups)


@dataclass(frozen=True, slots=True)
class Commit:
    """A fenced write that the resource accepted."""

    resource: str
    fence: int
    nonce: str
    version: int = 0
    at: float = 0.0
    """When it was known to be done."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A fence handed out, with when it was asked for and when it was there."""

    resource: str
    fence: int
    nonce: str
    invoked_at: float
    completed_at: float


@dataclass(frozen=True, slots=True)
class Load:
    """State read by a new owner, after its fence was installed."""

    resource: str
    fence: int
    version: int
    invoked_at: float


def commit_fences(commits: Iterable[Commit]) -> Verdict:
    """I1: per resource, in the order given (the resource's own), fences never go back, one nonce at each."""
    verdict = Verdict(examined={"commits": 0, "fence_changes": 0})
    for resource, rows in _by(commits, lambda c: c.resource).items():
        highest = rows[0]
        nonces: dict[int, Commit] = {}
        for commit in rows:
            verdict.examined["commits"] += 1
            first = nonces.setdefault(commit.fence, commit)
            if commit.nonce != first.nonce:
                verdict.broken("I1", f"{resource}: two nonces at fence {commit.fence}", first, commit)
            if commit.fence < highest.fence:
                text = f"{resource}: fence {commit.fence} committed after {highest.fence}"
                verdict.broken("I1", text, highest, commit)
            elif commit.fence > highest.fence:
                verdict.examined["fence_changes"] += 1
                highest = commit
    return verdict


def grant_fences(grants: Iterable[Grant]) -> Verdict:
    """I5: of two grants, one complete before the other was asked for, the later has the higher fence.

    No two grants share a fence at all (I1). `ordered_pairs` counts the pairs that had an order to respect.
    """
    verdict = Verdict(examined={"grants": 0, "ordered_pairs": 0})
    for resource, rows in _by(grants, lambda g: g.resource).items():
        verdict.examined["grants"] += len(rows)
        for fence, twins in _by(rows, lambda g: g.fence).items():
            if len(twins) > 1:
                verdict.broken("I1", f"{resource}: fence {fence} granted {len(twins)} times", *twins)
        done = sorted(rows, key=lambda g: g.completed_at)
        ends = [grant.completed_at for grant in done]
        highest = list(itertools.accumulate(done, _higher))
        for grant in rows:
            before = bisect.bisect_left(ends, grant.invoked_at)
            verdict.examined["ordered_pairs"] += before
            if before and highest[before - 1].fence >= grant.fence:
                earlier = highest[before - 1]
                text = f"{resource}: fence {grant.fence} granted after {earlier.fence}"
                verdict.broken("I5", text, earlier, grant)
    return verdict


def _higher(one: Grant, other: Grant) -> Grant:
    return one if one.fence >= other.fence else other


def takeover_state(commits: Iterable[Commit], loads: Iterable[Load]) -> Verdict:
    """I8: a new owner reads at least the last version committed before it asked, or under a lower fence."""
    verdict = Verdict(examined={"loads": 0, "compared": 0})
    known = _by(commits, lambda c: c.resource)
    for load in loads:
        verdict.examined["loads"] += 1
        past = [c for c in known.get(load.resource, ()) if c.at < load.invoked_at or c.fence < load.fence]
        if not past:
            continue
        verdict.examined["compared"] += 1
        last = max(past, key=lambda c: c.version)
        if load.version < last.version:
            text = f"{load.resource}: version {load.version} read, {last.version} was committed"
            verdict.broken("I8", text, last, load)
    return verdict


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as its sender knows it. `number` counts per (sender, entity), in send order."""

    message: str
    sender: str
    entity: str
    number: int
    outcome: Literal["accepted", "rejected", "unknown"] = "accepted"


@dataclass(frozen=True, slots=True)
class Effect:
    """A message's effect, as the store knows it."""

    message: str
    entity: str


def exactly_once(
    sent: Iterable[Sent], effects: Iterable[Effect], *, losses: Literal["violation", "count"] = "violation"
) -> Verdict:
    """I2: an accepted message has one effect, a rejected one none, an unknown one at most one.

    `losses="count"` is for faults that may lose: `examined["lost"]` then says how many did.
    """
    verdict = Verdict(examined={"accepted": 0, "rejected": 0, "unknown": 0, "effects": 0, "lost": 0})
    found = Counter((effect.message, effect.entity) for effect in effects)
    verdict.examined["effects"] = found.total()
    for message in sent:
        verdict.examined[message.outcome] += 1
        times = found.pop((message.message, message.entity), 0)
        if times > 1:
            verdict.broken("I2", f"{message.message}: {times} effects", message)
        elif times and message.outcome == "rejected":
            verdict.broken("I2", f"{message.message}: rejected, and has an effect", message)
        elif not times and message.outcome == "accepted":
            verdict.examined["lost"] += 1
            if losses == "violation":
                verdict.broken("I2", f"{message.message}: accepted, and has no effect", message)
    for message_id, entity in found:
        verdict.broken("I2", f"{message_id}: an effect on {entity} that nobody sent", (message_id, entity))
    return verdict


def send_order(sent: Iterable[Sent], effects: Iterable[Effect]) -> Verdict:
    """I3: effects of each (sender, entity) come in send order; effects in the order given, the store's own.

    A repeated effect is I4's affair: only the first of each message counts here.
    """
    verdict = Verdict(examined={"effects": 0, "ordered_pairs": 0})
    known = {(message.message, message.entity): message for message in sent}
    last: dict[tuple[str, str], Sent] = {}
    for effect in dict.fromkeys(effects):
        message = known.get((effect.message, effect.entity))
        if message is None:
            continue
        verdict.examined["effects"] += 1
        line = (message.sender, message.entity)
        before = last.get(line)
        if before is not None:
            verdict.examined["ordered_pairs"] += 1
            if message.number < before.number:
                text = f"{message.sender} to {message.entity}: {message.number} came after {before.number}"
                verdict.broken("I3", text, before, message)
                continue
        last[line] = message
    return verdict


def duplicates(lists: Mapping[str, Sequence[str]]) -> Verdict:
    """I4: no message id stands twice in an entity's own list of what it handled."""
    verdict = Verdict(examined={"entities": len(lists), "messages": 0})
    for entity, messages in lists.items():
        verdict.examined["messages"] += len(messages)
        for message, times in Counter(messages).items():
            if times > 1:
                verdict.broken("I4", f"{entity}: {message} handled {times} times", entity, message)
    return verdict


def cron_ticks(rows: Iterable[Tick], effects: Iterable[Tick], expected: Iterable[Tick] = ()) -> Verdict:
    """I6: one row and one effect per tick, no effect without a row, and none missing of those expected."""
    verdict = Verdict()
    written, run = Counter(rows), Counter(effects)
    wanted = set(expected)
    verdict.examined |= {"rows": written.total(), "effects": run.total(), "expected": len(wanted)}
    for tick in sorted({*written, *run, *wanted}):
        if written[tick] != 1 or run[tick] != 1:
            text = f"{tick[0]} at {tick[1]}: {written[tick]} rows and {run[tick]} effects"
            verdict.broken("I6", text, tick)
    return verdict


@dataclass(frozen=True, slots=True)
class MailboxCount:
    """A mailbox under load: every length seen, and what its senders were told."""

    entity: str
    capacity: int
    lengths: Sequence[int]
    sent: int
    accepted: int
    rejected: int
    unknown: int = 0


def bound(mailboxes: Iterable[MailboxCount]) -> Verdict:
    """I7: never longer than its capacity, and every send is accounted for."""
    verdict = Verdict(examined={"mailboxes": 0, "lengths": 0, "rejected": 0, "longest": 0})
    for box in mailboxes:
        verdict.examined["mailboxes"] += 1
        verdict.examined["lengths"] += len(box.lengths)
        verdict.examined["rejected"] += box.rejected
        longest = max(box.lengths, default=0)
        verdict.examined["longest"] = max(verdict.examined["longest"], longest)
        if longest > box.capacity:
            verdict.broken("I7", f"{box.entity}: {longest} messages in a mailbox for {box.capacity}", box)
        told = box.accepted + box.rejected + box.unknown
        if told != box.sent:
            verdict.broken("I7", f"{box.entity}: {box.sent} sent, {told} answered", box)
    return verdict


@dataclass(frozen=True, slots=True)
class OwnershipEvent:
    """A shard gained, or given up, by an owner."""

    shard: str
    owner: str
    kind: Literal["granted", "released"]
    at: float


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
    """Pair grants with releases. `ends` says when an owner was killed or stopped: it holds nothing after."""
    spans: list[Span] = []
    held: dict[tuple[str, str], float] = {}
    for event in sorted(events, key=lambda e: e.at):
        key = (event.shard, event.owner)
        if event.kind == "granted":
            held.setdefault(key, event.at)
        elif key in held:
            spans.append(_span(key, held.pop(key), event.at, ends))
    spans += [_span(key, begin, math.inf, ends) for key, begin in held.items()]
    return spans


def _span(key: tuple[str, str], begin: float, end: float, ends: Mapping[str, float] | None) -> Span:
    shard, owner = key
    limit = (ends or {}).get(owner, math.inf)
    return Span(shard, owner, begin, min(end, limit) if begin <= limit else end)


def recovery(
    spans: Iterable[Span], *, shards: Collection[str], begin: float, until: float, bound: float
) -> Verdict:
    """I9: between two times no shard is without an owner for longer than the bound, nor at the end."""
    verdict = Verdict(examined={"shards": len(shards), "gaps": 0, "longest_gap": 0.0})
    owned = _by(spans, lambda s: s.shard)
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


def overlaps(spans: Iterable[Span]) -> Verdict:
    """I1, seen as time: no two owners could commit to one shard at once. Touching ends do not overlap.

    The spans must be those in which each owner *could commit* (first to last accepted commit, say): a
    paused owner that only believes it holds the shard breaks no promise.
    """
    verdict = Verdict(examined={"spans": 0, "neighbours": 0})
    for shard, rows in _by(spans, lambda s: s.shard).items():
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
    groups = _by(commits, lambda c: (c.resource, c.nonce))
    return [
        Span(resource, nonce, min(c.at for c in rows), max(c.at for c in rows))
        for (resource, nonce), rows in groups.items()
    ]


class SearchTooLargeError(Exception):
    """The history has too many open operations to be judged within the limit."""


def linearizable(
    operations: Iterable[RegisterOperation], *, initial: Hashable = None, limit: int = 1_000_000
) -> Verdict:
    """The lease register behaves as if each operation happened at one instant between its ends.

    Wing and Gong's search with Lowe's memory of (done, value), per key. `limit` bounds what it remembers.
    """
    verdict = Verdict(examined={"keys": 0, "operations": 0, "states": 0, "concurrent": 0})
    for key, rows in _by(operations, lambda o: o.key).items():
        ordered = sorted(rows, key=lambda o: o.invoked_at)
        verdict.examined["keys"] += 1
        verdict.examined["operations"] += len(ordered)
        verdict.examined["concurrent"] += sum(
            later.invoked_at < earlier.completed_at for earlier, later in itertools.pairwise(ordered)
        )
        states = _search(ordered, initial, limit)
        verdict.examined["states"] += len(states)
        certain = sum(1 << i for i, o in enumerate(ordered) if o.completed_at < math.inf)
        if not any(done & certain == certain for done, _ in states):
            furthest = max(states, key=lambda state: (state[0] & certain).bit_count())
            stuck = [o for i, o in enumerate(ordered) if not furthest[0] >> i & 1]
            verdict.broken("linearizable", f"register {key}: no order explains what was seen", *stuck[:5])
    return verdict


def _search(operations: list[RegisterOperation], initial: Hashable, limit: int) -> set[tuple[int, Hashable]]:
    """Return the states reached: which operations have happened (a bit each), and the value then."""
    certain = sum(1 << i for i, o in enumerate(operations) if o.completed_at < math.inf)
    seen: set[tuple[int, Hashable]] = {(0, initial)}
    waiting: list[tuple[int, Hashable]] = [(0, initial)]
    while waiting:
        done, value = waiting.pop()
        if done & certain == certain:
            break
        for index in _possible(operations, done):
            legal, after = _apply(operations[index], value)
            state = (done | 1 << index, after)
            if legal and state not in seen:
                seen.add(state)
                waiting.append(state)
        if len(seen) > limit:
            raise SearchTooLargeError(f"more than {limit} states for {len(operations)} operations")
    return seen


def _possible(operations: list[RegisterOperation], done: int) -> list[int]:
    """Which may happen next: those that began before anything still to happen had ended."""
    possible: list[int] = []
    first_end = math.inf
    first_open = (~done & (done + 1)).bit_length() - 1
    for index in range(first_open, len(operations)):
        operation = operations[index]
        if operation.invoked_at > first_end:
            break
        if not done >> index & 1:
            possible.append(index)
            first_end = min(first_end, operation.completed_at)
    return [i for i in possible if operations[i].invoked_at <= first_end]


def _apply(operation: RegisterOperation, value: Hashable) -> tuple[bool, Hashable]:
    """Say whether the operation may happen on this value with the result seen, and the value after it."""
    unknown = operation.completed_at == math.inf
    if operation.kind == "read":
        return not unknown and operation.result == value, value
    if operation.kind == "write":
        return not unknown or value != operation.value, operation.value
    fits = operation.expected == value
    if unknown:  # one that changes nothing might as well never have happened
        return fits and value != operation.value, operation.value
    return bool(operation.result) == fits, operation.value if fits else value
