"""The demo's bank: what an account writes down, and the reckoning that must notice every wrong book."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from redis_cluster_kit.cli.demo.bank import OPENING, Account, Book, Declined, Totals
from redis_cluster_kit.cli.demo.books import Transfer, reckon
from redis_cluster_kit.testing import instance

A, B, C = "a", "b", "c"


async def test_a_transfer_takes_the_money_and_sends_what_brings_it() -> None:
    alice: Any = instance(Account, A)
    assert await alice.transfer(7, B, 400) == OPENING - 400
    assert alice.state == Book(balance=OPENING - 400, out=400, paid=[7])
    (message,) = alice.sent
    assert (message.id, message.rpc, message.arguments) == (B, "deposit", {"number": 7, "amount": 400})
    with pytest.raises(Declined) as caught:
        await alice.transfer(8, B, 700)
    assert caught.value.missing == 100
    assert alice.state.paid == [7]
    assert len(alice.sent) == 1


async def test_a_deposit_is_written_down() -> None:
    bob: Any = instance(Account, B)
    await bob.deposit(7, 400)
    assert bob.state == Book(balance=OPENING + 400, into=400, received=[7])
    assert await bob.totals() == Totals(OPENING + 400, 0, 400)
    assert (await bob.totals()).adds_up
    assert not Totals(OPENING + 1, 0, 0).adds_up


def good() -> tuple[dict[str, Book], list[Transfer]]:
    books = {
        A: Book(balance=OPENING - 30, out=30, paid=[0, 2]),
        B: Book(balance=OPENING + 10 - 5, into=10, out=5, received=[0], paid=[3]),
        C: Book(balance=OPENING + 20 + 5, into=25, received=[2, 3]),
    }
    transfers = [
        Transfer(0, A, B, 10, "acknowledged", asks=1),
        Transfer(1, A, B, 9_999, "declined", asks=1),
        Transfer(2, A, C, 20, "acknowledged", asks=2),
        Transfer(3, B, C, 5, "unknown", asks=4),
        Transfer(4, C, A, 7, "unknown", asks=4),
    ]
    return books, transfers


def test_books_that_are_right() -> None:
    found = reckon(*good())
    assert (found.effects, found.imbalance) == ([], [])
    assert (found.accounts, found.acknowledged, found.repeated) == (3, 2, 1)
    assert found.held == found.opened_with == 3 * OPENING


def twice_paid(books: dict[str, Book]) -> None:
    books[A].paid.append(0)
    books[A].balance -= 10


def twice_received(books: dict[str, Book]) -> None:
    books[B].received.append(0)
    books[B].balance += 10


def lost_on_its_way(books: dict[str, Book]) -> None:
    books[C].received.remove(2)
    books[C].balance -= 20


def never_done(books: dict[str, Book]) -> None:
    books[A].paid.remove(0)
    books[A].balance += 10
    books[B].received.remove(0)
    books[B].balance -= 10


def half_of_an_unknown(books: dict[str, Book]) -> None:
    books[C].received.remove(3)
    books[C].balance -= 5


def declined_and_done(books: dict[str, Book]) -> None:
    books[A].paid.append(1)
    books[B].received.append(1)


def at_the_wrong_account(books: dict[str, Book]) -> None:
    books[B].received.remove(0)
    books[B].balance -= 10
    books[C].received.append(0)
    books[C].balance += 10


def invented(books: dict[str, Book]) -> None:
    books[A].received.append(99)


@pytest.mark.parametrize(
    "sabotage",
    [
        twice_paid,
        twice_received,
        lost_on_its_way,
        never_done,
        half_of_an_unknown,
        declined_and_done,
        at_the_wrong_account,
        invented,
    ],
)
def test_every_wrong_effect_is_noticed_although_sums_may_agree(sabotage: Any) -> None:
    books, transfers = good()
    before = copy.deepcopy(books)
    sabotage(books)
    assert books != before
    assert len(reckon(books, transfers).effects) == 1


def test_money_that_comes_or_goes_is_noticed() -> None:
    books, transfers = good()
    books[B].balance += 1
    found = reckon(books, transfers)
    assert found.effects == []
    assert found.imbalance == [
        "b holds 1,006, its transfers make 1,005",
        "all accounts hold 3,001, they were opened with 3,000",
    ]
    books[C].balance -= 1  # the total is right again, the books are not
    assert len(reckon(books, transfers).imbalance) == 2
