"""The last reckoning: every book is read and compared with what the customers were told. Pure.

It trusts nobody: not the sums an account keeps, not the auditor. A transfer that was acknowledged must stand
in exactly one book as paid and in exactly one as received; one that was declined in none; one whose outcome
nobody knows in none, or in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from .bank import OPENING, Book

Outcome = Literal["open", "acknowledged", "declined", "unknown"]


@dataclass(slots=True)
class Transfer:
    """One transfer, as the customer knows it."""

    number: int
    source: str
    target: str
    amount: int
    outcome: Outcome = "open"
    asks: int = 0
    """How often it was asked for, under one idempotency key."""


@dataclass(frozen=True, slots=True)
class Reckoning:
    """What came of it."""

    accounts: int
    held: int
    opened_with: int
    acknowledged: int
    repeated: int
    """Of those, how many were asked for more than once."""
    effects: list[str] = field(default_factory=list[str])
    """Transfers that have another number of effects than they must, in words."""
    imbalance: list[str] = field(default_factory=list[str])
    """Books that hold another sum than their transfers make, in words."""


def reckon(books: Mapping[str, Book], transfers: Iterable[Transfer]) -> Reckoning:
    """Compare the books with what customers were told."""
    given = {transfer.number: transfer for transfer in transfers}
    acknowledged = [one for one in given.values() if one.outcome == "acknowledged"]
    paid = _places({name: book.paid for name, book in books.items()})
    received = _places({name: book.received for name, book in books.items()})
    effects = [text for one in given.values() if (text := _judge(one, paid, received))]
    effects += [
        f"transfer {number}: nobody asked for it" for number in sorted({*paid, *received} - given.keys())
    ]
    return Reckoning(
        accounts=len(books),
        held=sum(book.balance for book in books.values()),
        opened_with=OPENING * len(books),
        acknowledged=len(acknowledged),
        repeated=sum(one.asks > 1 for one in acknowledged),
        effects=effects,
        imbalance=_imbalance(books, given),
    )


def _places(numbers: Mapping[str, list[int]]) -> dict[int, list[str]]:
    """Where each transfer stands, as often as it stands there."""
    found: dict[int, list[str]] = {}
    for name, all_of in numbers.items():
        for number in all_of:
            found.setdefault(number, []).append(name)
    return found


def _judge(one: Transfer, paid: Mapping[int, list[str]], received: Mapping[int, list[str]]) -> str:
    """Return what is wrong with a transfer; empty if nothing."""
    seen = paid.get(one.number, []), received.get(one.number, [])
    whole, none = ([one.source], [one.target]), (list[str](), list[str]())
    right = {"acknowledged": (whole,), "declined": (none,)}.get(one.outcome, (whole, none))
    if seen in right:
        return ""
    return (
        f"transfer {one.number} ({one.outcome}) from {one.source} to {one.target}: "
        f"paid by {seen[0] or 'nobody'}, received by {seen[1] or 'nobody'}"
    )


def _imbalance(books: Mapping[str, Book], given: Mapping[int, Transfer]) -> list[str]:
    """Add every book up anew, from the amounts the customers asked for."""
    wrong: list[str] = []
    for name, book in books.items():
        into = sum(given[number].amount for number in book.received if number in given)
        out = sum(given[number].amount for number in book.paid if number in given)
        if book.balance != OPENING + into - out:
            wrong.append(f"{name} holds {book.balance:,}, its transfers make {OPENING + into - out:,}")
    held, opened_with = sum(book.balance for book in books.values()), OPENING * len(books)
    if held != opened_with:
        wrong.append(f"all accounts hold {held:,}, they were opened with {opened_with:,}")
    return wrong
