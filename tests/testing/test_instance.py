"""One entity without a cluster."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest

from redis_cluster_kit import MalformedMessageError
from redis_cluster_kit.testing import Sent, assert_nothing_sent, assert_sent, instance, messages_sent

from .accounts import Account, Bank, Insufficient, Ledger


async def test_its_rpcs_run_here_and_now() -> None:
    alice = instance(Account, "alice", state=Ledger(5))
    assert await alice.deposit(3) == 8
    assert alice.state == Ledger(8)
    assert alice.id == "alice"
    assert alice.address.type == "account"


async def test_without_a_state_it_begins_with_the_initial_one() -> None:
    assert await instance(Account, "alice").deposit(3) == 3


async def test_what_a_turn_sends_is_kept() -> None:
    alice = instance(Account, "alice", state=Ledger(5))
    await alice.transfer("bob", 2)
    await alice.remind()
    assert messages_sent(alice) == [
        Sent("account", "bob", "deposit", {"amount": 2}),
        Sent("account", "alice", "deposit", {"amount": 1}, messages_sent(alice)[1].options),
    ]
    assert messages_sent(alice)[1].options.delay == timedelta(days=1)


async def test_a_turn_that_raises_changes_and_sends_nothing() -> None:
    alice = instance(Account, "alice", state=Ledger(5))
    with pytest.raises(Insufficient) as caught:
        await alice.transfer("bob", 7)
    assert caught.value.missing == 2
    assert alice.state == Ledger(5)
    assert messages_sent(alice) == []


async def test_resources_and_answers_come_from_the_test() -> None:
    alice = instance(
        Account, "alice", state=Ledger(5), resources={Bank: Bank()}, answers={Account.interest: 40}
    )
    assert await alice.interest() == 15
    assert await alice.copy_of("bob") == 40
    failing = instance(Account, "alice", answers={Account.interest: ValueError("no")})
    with pytest.raises(ValueError, match="no"):
        await failing.copy_of("bob")


async def test_what_the_test_has_not_given_is_named() -> None:
    alice = instance(Account, "alice")
    with pytest.raises(LookupError, match="no resource Bank"):
        await alice.interest()
    with pytest.raises(LookupError, match=r"account/bob\.interest was asked"):
        await alice.copy_of("bob")
    with pytest.raises(AttributeError, match="no rpc 'nothing'"):
        _ = cast("Any", alice).nothing


async def test_arguments_are_checked_as_in_a_cluster() -> None:
    with pytest.raises(MalformedMessageError):
        await instance(Account, "alice").deposit(cast("int", "1"))


async def test_it_is_started_once() -> None:
    alice = instance(Account, "alice")
    await alice.deposit(1)
    assert await alice.started() == 1


async def test_what_was_sent_is_asserted_in_a_line() -> None:
    alice = instance(Account, "alice", state=Ledger(5))
    assert_nothing_sent(alice)
    await alice.transfer("bob", 2)
    await alice.remind()
    assert assert_sent(alice, Account.deposit, "bob", amount=2).options.delay is None
    assert assert_sent(alice, Account.deposit, "alice").options.delay == timedelta(days=1)
    with pytest.raises(AssertionError) as caught:
        assert_sent(alice, Account.deposit, "bob", amount=3)
    assert str(caught.value) == (
        "expected account/bob.deposit(amount=3) to be sent once, it was sent 0 times; "
        "all: account/bob.deposit(amount=2); account/alice.deposit(amount=1)"
    )
    await alice.transfer("bob", 2)
    with pytest.raises(AssertionError, match="it was sent 2 times"):
        assert_sent(alice, Account.deposit, "bob")
    with pytest.raises(AssertionError, match="expected no message to be sent"):
        assert_nothing_sent(alice)
    with pytest.raises(TypeError, match=r"what `instance\(…\)` returned"):
        messages_sent(cast("Account", "alice"))
