"""Entity classes: what their definition says of names, keywords, rpcs and state."""

# No `from __future__ import annotations`: classes inside functions need their annotations resolved at once.
import dataclasses
from datetime import timedelta
from typing import Any, Generic, TypeVar

import msgspec
import pytest

from redis_cluster_kit.entity import Entity, EntityDefinition, Retry, define, rpc
from redis_cluster_kit.errors import EntityError, MalformedMessageError

S = TypeVar("S")


class Ledger(msgspec.Struct):
    balance: int = 0
    note: str = ""


class Insufficient(EntityError, code="insufficient"):
    missing: int


class Account(
    Entity[Ledger],
    name="account",
    mailbox_capacity=7,
    max_idle=timedelta(minutes=3),
    concurrency=2,
    shard_group="billing",
    state_version=4,
    retry=Retry(max_attempts=9),
):
    @rpc
    async def deposit(self, amount: int, note: str = "") -> int:
        self.state.balance += amount
        self.state.note = note
        return self.state.balance

    @rpc(raises=[Insufficient], name="take")
    async def withdraw(self, amount: int) -> int:
        if amount > self.state.balance:
            raise Insufficient(missing=amount - self.state.balance)
        return await self.deposit(-amount)

    @rpc(readonly=True)
    async def balance(self) -> int:
        return self.state.balance


class Premium(Account, concurrency=1):
    @rpc
    async def bonus(self, percent: float) -> None: ...


class Base(Entity[S], Generic[S]):
    @rpc
    async def touch(self) -> None: ...


class Late(Entity["AfterLate"]): ...


class AfterLate(msgspec.Struct):
    seen: int = 3


class Plain(Entity[None]): ...


def test_a_definition_says_what_the_class_says() -> None:
    made = define(Account)
    assert (made.name, made.entity, made.state) == ("account", Account, Ledger)
    assert (made.shard_group, made.capacity, made.max_idle) == ("billing", 7, timedelta(minutes=3))
    assert (made.concurrency, made.state_version, made.retry) == (2, 4, Retry(max_attempts=9))
    assert set(made.rpcs) == {"deposit", "take", "balance"}
    deposit, take, balance = (made.rpcs[name] for name in ("deposit", "take", "balance"))
    assert dict(deposit.parameters) == {"amount": int, "note": str}
    assert deposit.required == {"amount"}
    assert (deposit.result, deposit.readonly, dict(deposit.raises)) == (int, False, {})
    assert (take.attribute, dict(take.raises)) == ("withdraw", {"insufficient": Insufficient})
    assert balance.readonly
    assert define(Account) is made


def test_a_definition_cannot_be_changed() -> None:
    made = define(Account)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.name = "other"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    rpcs: Any = made.rpcs
    with pytest.raises(TypeError):
        rpcs["deposit"] = None


def test_defaults() -> None:
    assert define(Plain) == EntityDefinition(
        name="Plain",
        entity=Plain,
        state=None,
        rpcs={},
        shard_group="default",
        capacity=None,
        max_idle=timedelta(minutes=10),
        concurrency=1,
        retry=Retry(base=timedelta(milliseconds=200), factor=2, max_attempts=5),
        state_version=1,
    )


def test_a_subclass_keeps_keywords_and_rpcs_but_not_the_name() -> None:
    made = define(Premium)
    assert (made.name, made.capacity, made.shard_group, made.concurrency) == ("Premium", 7, "billing", 1)
    assert made.state is Ledger
    assert set(made.rpcs) == {"deposit", "take", "balance", "bonus"}
    assert "bonus" not in define(Account).rpcs


def test_an_overriding_rpc_replaces_the_inherited_one() -> None:
    class Strict(Account):
        @rpc(readonly=True)
        async def deposit(self, amount: int, note: str = "") -> int:
            return 0

    assert define(Strict).rpcs["deposit"].readonly
    assert not define(Account).rpcs["deposit"].readonly


def test_the_state_is_found_through_generic_bases_and_later_names() -> None:
    class Named(Base[Ledger]): ...

    class Further(Named): ...

    assert define(Named).state is Ledger
    assert define(Further).state is Ledger
    assert define(Late).state is AfterLate
    with pytest.raises(TypeError, match="Base is generic in its state"):
        define(Base)


def test_a_missing_return_annotation_is_any() -> None:
    class Loose(Entity[None]):
        @rpc
        async def run(self):  # type: ignore[no-untyped-def]
            return 1

    assert define(Loose).rpcs["run"].result is Any


class Required(msgspec.Struct):
    balance: int


def test_initial_allows_a_state_with_required_fields() -> None:
    class Opened(Entity[Required]):
        def initial(self) -> Required:
            return Required(balance=5)

    assert define(Opened).state is Required
    assert Opened().initial() == Required(balance=5)


def test_the_initial_state_is_a_new_one_each_time() -> None:
    first, second = Account().initial(), Account().initial()
    assert first == second == Ledger()
    assert first is not second
    assert Plain().initial() is None


def test_upgrade_reads_the_old_fields_that_fit() -> None:
    assert Account.upgrade({"balance": 5, "gone": 1}, 3) == Ledger(balance=5)
    with pytest.raises(MalformedMessageError):
        Account.upgrade({"balance": "five"}, 3)


def test_upgrade_may_be_written_without_classmethod() -> None:
    def upgrade(cls: type[Any], raw: dict[str, Any], version: int) -> Ledger:
        return Ledger(balance=raw["cents"] * version)

    older: Any = type("Older", (Account,), {"upgrade": upgrade})
    assert older.upgrade({"cents": 5}, 1) == Ledger(balance=5)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"base": timedelta()}, "Retry.base"),
        ({"factor": 0.5}, "Retry.factor is 0.5, it must be from 1 to 100"),
        ({"factor": float("nan")}, "Retry.factor"),
        ({"max_attempts": 0}, "Retry.max_attempts is 0"),
        ({"max_attempts": True}, "Retry.max_attempts is True"),
    ],
)
def test_a_retry_is_bounded(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Retry(**fields)
