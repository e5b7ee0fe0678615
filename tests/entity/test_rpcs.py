"""Using an rpc: a plain call on an instance, values on the class, and clear refusals without a cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_cluster_kit.entity import (
    DEFAULT,
    CallOptions,
    Entity,
    RpcCall,
    RpcMethod,
    current,
    make_instance,
    rpc,
    within_cluster,
)
from redis_cluster_kit.errors import ClusterContextRequired, EntityError
from redis_cluster_kit.identity import EntityAddress, ShardId

T = TypeVar("T")


class Ledger(msgspec.Struct):
    balance: int = 0


class Insufficient(EntityError, code="insufficient"):
    missing: int


class Account(Entity[Ledger], name="account"):
    @rpc
    async def deposit(self, amount: int, times: int = 1) -> int:
        """Add to the balance."""
        self.state.balance += amount * times
        return self.state.balance

    @rpc(raises=[Insufficient], name="take")
    async def withdraw(self, amount: int) -> int:
        if amount > self.state.balance:
            raise Insufficient(missing=amount - self.state.balance)
        return await self.deposit(-amount)

    @rpc(readonly=True)
    async def where(self) -> str | None:
        return current().entity_id


class Premium(Account):
    pass


class Settled:
    """An activation that knows an address and resources, and counts its `keep_alive` calls."""

    def __init__(self, resources: dict[type[Any], Any]) -> None:
        self.address = EntityAddress("account", "alice", ShardId("default", 42))
        self.cluster = "the cluster"
        self.kept = 0
        self._resources = resources

    def resource(self, type: type[T], /) -> T:
        found: T = self._resources[type]
        return found

    def keep_alive(self) -> None:
        self.kept += 1

    def call(self, rpc: str, options: CallOptions, /) -> RpcCall[Any, Any]:
        return RpcCall(rpc, options)


def account(balance: int = 0) -> Account:
    made = Account()
    made.state = Ledger(balance)
    return made


async def test_a_call_on_self_is_a_plain_method_call() -> None:
    alice = account(10)
    assert await alice.deposit(5) == 15
    assert await alice.deposit(amount=5, times=2) == 25
    assert await alice.withdraw(20) == 5
    assert alice.state.balance == 5
    with pytest.raises(Insufficient) as caught:
        await alice.withdraw(8)
    assert caught.value.missing == 3
    with within_cluster(entity_id="alice"):
        assert await alice.where() == "alice"


async def test_wrong_arguments_of_a_plain_call_are_a_type_error() -> None:
    with pytest.raises(TypeError, match="amount"):
        await account().deposit()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("options", [{}, {"delay": timedelta(hours=1)}, {"timeout": None}], ids=str)
async def test_sending_and_asking_without_a_cluster_is_refused(options: dict[str, Any]) -> None:
    alice = account(10)
    with pytest.raises(ClusterContextRequired, match=r"Account.take needs a cluster"):
        await alice.withdraw.send(1)
    with pytest.raises(ClusterContextRequired, match=r"Account.take needs a cluster"):
        await alice.withdraw.options(**options).send(1)
    with pytest.raises(ClusterContextRequired, match=r"Account.take needs a cluster"):
        await alice.withdraw.options(**options)(1)
    assert alice.state.balance == 10


@pytest.mark.parametrize("attribute", ["id", "address", "cluster"])
def test_an_instance_without_a_cluster_says_so(attribute: str) -> None:
    with pytest.raises(ClusterContextRequired, match=r"Account.\w+ needs a cluster"):
        getattr(account(), attribute)
    with pytest.raises(ClusterContextRequired, match=r"Account.resource"):
        account().resource(dict)
    with pytest.raises(ClusterContextRequired, match=r"Account.keep_alive"):
        account().keep_alive()


def test_a_live_instance_knows_where_it_is() -> None:
    activation = Settled({Ledger: Ledger(7)})
    alice, bob = make_instance(Account, activation), make_instance(Account, Settled({}))
    assert type(alice) is Account
    assert (alice.id, alice.address, alice.cluster) == ("alice", activation.address, "the cluster")
    assert alice.resource(Ledger).balance == 7
    alice.keep_alive()
    bob.keep_alive()
    assert activation.kept == 1


async def test_hooks_do_nothing_unless_overridden() -> None:
    alice = account(3)
    await alice.on_start()
    await alice.on_stop()
    assert alice.state == Ledger(3)


def test_on_the_class_an_rpc_is_a_value() -> None:
    assert Account.withdraw == RpcMethod(Account, "take")
    assert Premium.withdraw == RpcMethod(Premium, "take")
    assert Premium.withdraw != Account.withdraw
    assert len({Account.deposit, Account.deposit, Account.withdraw}) == 2
    assert repr(Account.withdraw) == "<rpc Account.take>"
    assert not callable(Account.deposit)
    assert vars(Account)["deposit"].__doc__ == "Add to the balance."


# --- options ---


def test_options_are_kept() -> None:
    when = datetime(2030, 1, 1, tzinfo=UTC)
    alice = make_instance(Account, Settled({}))
    call = alice.withdraw.options(deliver_at=when, idempotency_key="order-17", timeout=2.0)
    assert call.label == "take"  # by its stored name
    assert call.call_options == CallOptions(deliver_at=when, idempotency_key="order-17", timeout=2.0)
    assert alice.deposit.options().call_options.timeout is DEFAULT
    assert alice.deposit.options(timeout=None).call_options.timeout is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"delay": timedelta(1), "deliver_at": datetime(2030, 1, 1, tzinfo=UTC)}, "not both"),
        ({"delay": timedelta(seconds=-1)}, "delay must not be negative"),
        ({"deliver_at": datetime(2030, 1, 1)}, "aware datetime, got 2030-01-01T00:00:00"),  # noqa: DTZ001
        ({"idempotency_key": ""}, "1 to 512 UTF-8 bytes"),
        ({"idempotency_key": "é" * 257}, "1 to 512 UTF-8 bytes"),
        ({"timeout": 0}, "timeout must be above 0 s, got 0"),
        ({"timeout": timedelta(seconds=-2)}, "timeout must be above 0 s, got -2"),
        ({"timeout": float("nan")}, "timeout must be above 0 s, got nan"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_options_that_make_no_sense_are_refused_at_once(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        account().deposit.options(**options)


@given(st.text(st.characters(), max_size=300))
def test_any_idempotency_key_is_kept_or_a_value_error(key: str) -> None:
    try:
        fits = 1 <= len(key.encode()) <= 512
    except UnicodeEncodeError:
        fits = False
    if fits:
        assert CallOptions(idempotency_key=key).idempotency_key == key
        return
    with pytest.raises(ValueError, match=r"UTF-8|surrogates"):
        CallOptions(idempotency_key=key)
