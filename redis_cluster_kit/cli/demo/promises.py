"""What the demo promises, judged by what was seen. Pure: whoever measures hands the figures over.

A promise about which nothing was seen counts as broken: a demo that shows nothing has kept nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .bank import Audit
from .books import Reckoning
from .watching import Grant, Spread, Stroke, unordered

HAND_OFF_LIMIT = 1.0


@dataclass(frozen=True, slots=True)
class Promise:
    """What was promised, and what was seen. `measured` and `limit` are seconds, None where none apply."""

    promise: str
    kept: bool
    seen: str
    measured: float | None = None
    limit: float | None = None


def takeover(spread: Spread | None, orphaned: int, limit: float) -> Promise:
    """Judge how long the shards of a killed pod waited; `orphaned` of them found no owner at all."""
    text = "after a kill every shard has a new owner in time"
    if spread is None or orphaned:
        seen = f"{orphaned} shards got none" if orphaned else "no takeover was seen"
        return Promise(text, False, seen, None, limit)
    seen = f"{spread.last:.2f} s for {spread.shards} shards"
    return Promise(text, spread.last <= limit, seen, spread.last, limit)


def hand_off(spread: Spread | None) -> Promise:
    """Judge how long shards that were given away were without an owner."""
    text = "a shard that is handed off is served elsewhere within a second"
    if spread is None:
        return Promise(text, False, "no hand-off was seen", None, HAND_OFF_LIMIT)
    seen = f"{spread.last * 1000:.0f} ms at most in {spread.shards} hand-offs"
    return Promise(text, spread.last <= HAND_OFF_LIMIT, seen, spread.last, HAND_OFF_LIMIT)


def fences(given: Sequence[Grant], steps_back: Sequence[str], looks: int) -> Promise:
    """Judge the fences: of the grants that pods told of, and of those installed in Redis, as looked at."""
    text = "a shard's fence grows with every owner and never goes back"
    pairs, wrong = unordered(given)
    wrong += steps_back
    if wrong or not pairs:
        return Promise(text, False, "; ".join(wrong[:3]) or "no shard changed hands")
    return Promise(text, True, f"{pairs} changes of owner, {looks} looks")


def none_of(failures: Sequence[str], text: str, seen: str) -> Promise:
    """Judge what either always held or has failures to name."""
    return Promise(text, not failures, f"not so: {'; '.join(failures)}" if failures else seen)


def one_effect(found: Reckoning | None, different: Sequence[str]) -> Promise:
    """Judge whether every transfer did what its customer was told, once."""
    text = "every acknowledged transfer has exactly one effect"
    if found is None or not found.acknowledged:
        return Promise(text, False, "no transfer was seen")
    wrong = [*found.effects, *different]
    if wrong:
        return Promise(text, False, f"{len(wrong)} have not: {'; '.join(wrong[:3])}")
    seen = f"{found.acknowledged:,} transfers, {found.repeated:,} of them asked for again under their keys"
    return Promise(text, True, f"{seen}: each is paid once and received once")


def balance(found: Reckoning | None) -> Promise:
    """Judge whether all money is where it should be."""
    text = "the books balance"
    if found is None or not found.accounts:
        return Promise(text, False, "no book was read")
    if found.imbalance:
        return Promise(text, False, "; ".join(found.imbalance[:3]))
    return Promise(text, True, f"{found.accounts} accounts hold {found.held:,}, as in the beginning")


def audits(audit: Audit, steps_back: Sequence[str], went_on: bool | None) -> Promise:
    """Judge the auditor; `went_on`: whether rounds came after its leader was killed, None if nobody was."""
    text = "the auditor has one leader after the other, and each goes on from what was saved"
    if not audit.rounds:
        return Promise(text, False, "no audit was seen")
    wrong = list(steps_back)
    if went_on is False:
        wrong.append("no round after its leader was killed")
    if audit.wrong:
        wrong.append(f"{audit.wrong} of {audit.rounds} rounds found books that do not add up")
    return Promise(text, not wrong, "; ".join(wrong[:3]) or f"{audit.rounds} rounds, none found anything")


def ticks(struck: Sequence[Stroke], done: int | None) -> Promise:
    """Judge the clock; `done`: how many of its ticks have ended well, says the database; None: not read.

    A tick whose pod was killed before it ended is begun again, as its next attempt: not a second tick.
    """
    text = "every second has one tick of the cron, whoever goes"
    seconds = {stroke.at for stroke in struck}
    if not seconds or done is None:
        return Promise(text, False, "no tick was seen" if done is not None else "it was not read")
    attempts = Counter((stroke.at, stroke.attempt) for stroke in struck)
    wrong = [f"second {at} struck {count} times" for (at, _), count in attempts.items() if count > 1]
    missing = max(seconds) - min(seconds) + 1 - len(seconds)
    if missing:
        wrong.append(f"{missing} seconds have none")
    if done != len(seconds):
        wrong.append(f"{len(seconds)} seconds were struck, {done} are done in the database")
    again = len(attempts) - len(seconds)
    seen = f"{len(seconds)} seconds, none missing, none twice" + (f", {again} begun again" if again else "")
    return Promise(text, not wrong, "; ".join(wrong[:3]) or seen)
