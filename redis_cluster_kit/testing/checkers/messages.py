"""Messages, mailboxes and ticks: nothing lost, nothing twice, nothing out of order, nothing over its bound.

Pure functions over rows. Effects come from the store's own append-only record, not from what processes claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from .verdict import Verdict

Tick: TypeAlias = tuple[str, Any]
"""A cron's name and its instant, in any form that sorts and is equal for equal instants."""


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
    listed: set[tuple[str, str]] = set()
    for message in sent:
        place = (message.message, message.entity)
        if place in listed:
            raise ValueError(f"expected each message once, got {place} twice: a repeat is no other message")
        listed.add(place)
        verdict.examined[message.outcome] += 1
        times = found.pop(place, 0)
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
