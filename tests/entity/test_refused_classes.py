"""Every entity class that is refused, when it is made or when its types are resolved: wrong on purpose."""

# mypy: disable-error-code="arg-type, call-arg, list-item, misc, name-defined, no-untyped-def, override, type-arg"
# pyright: reportUnusedClass=false, reportArgumentType=false, reportCallIssue=false, reportSelfClsParameterName=false
# pyright: reportIncompatibleVariableOverride=false, reportIncompatibleMethodOverride=false
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false
# pyright: reportUndefinedVariable=false, reportUnknownLambdaType=false, reportGeneralTypeIssues=false
# ruff: noqa: F821, E501

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_cluster_kit.entity import Entity, define, rpc
from redis_cluster_kit.errors import EntityError


class Insufficient(EntityError, code="insufficient"):
    missing: int


class Plain(Entity[None]): ...


class Account(Entity[None]):
    @rpc(readonly=True)
    async def balance(self) -> int:
        return 0


class Required(msgspec.Struct):
    balance: int


# --- what is refused when the class is made ---


def sync_handler() -> None:
    class Bad(Entity[None]):
        @rpc
        def run(self) -> int:
            return 1


def generator_handler() -> None:
    class Bad(Entity[None]):
        @rpc
        async def run(self) -> Any:
            yield 1


def unannotated() -> None:
    class Bad(Entity[None]):
        @rpc
        async def run(self, amount) -> None: ...


def star_args() -> None:
    class Bad(Entity[None]):
        @rpc
        async def run(self, *args: int) -> None: ...


def star_kwargs() -> None:
    class Bad(Entity[None]):
        @rpc
        async def run(self, **fields: int) -> None: ...


def positional_only() -> None:
    class Bad(Entity[None]):
        @rpc
        async def run(self, amount: int, /) -> None: ...


def without_self() -> None:
    class Bad(Entity[None]):
        @rpc
        async def run() -> None: ...


def like_an_attribute() -> None:
    class Bad(Entity[None]):
        @rpc
        async def cluster(self) -> None: ...


def like_the_state() -> None:
    class Bad(Entity[None]):
        @rpc
        async def state(self) -> None: ...


def like_a_durable_call() -> None:
    class Bad(Entity[None]):
        @rpc
        async def step(self) -> None: ...


def bad_type_name() -> None:
    class Bad(Entity[None], name="my account"): ...


def bad_group() -> None:
    class Bad(Entity[None], shard_group=""): ...


def bad_rpc_name() -> None:
    class Bad(Entity[None]):
        @rpc(name="de:posit")
        async def deposit(self) -> None: ...


def one_name_twice() -> None:
    class Bad(Entity[None]):
        @rpc
        async def deposit(self) -> None: ...
        @rpc(name="deposit")
        async def other(self) -> None: ...


def no_state() -> None:
    class Bad(Entity): ...


def zero_capacity() -> None:
    class Bad(Entity[None], mailbox_capacity=0): ...


def zero_concurrency() -> None:
    class Bad(Entity[None], concurrency=0): ...


def idle_in_seconds() -> None:
    class Bad(Entity[None], max_idle=60): ...


def never_idle() -> None:
    class Bad(Entity[None], max_idle=timedelta()): ...


def retry_as_a_number() -> None:
    class Bad(Entity[None], retry=3): ...


def unknown_keyword() -> None:
    class Bad(Entity[None], colour="red"): ...


def undeclarable_error() -> None:
    class Bad(Entity[None]):
        @rpc(raises=[ValueError])
        async def run(self) -> None: ...


def one_code_twice() -> None:
    class Same(EntityError, code="insufficient"): ...

    class Bad(Entity[None]):
        @rpc(raises=[Insufficient, Same])
        async def run(self) -> None: ...


def sync_hook() -> None:
    class Bad(Entity[None]):
        def on_start(self) -> None: ...


def rpc_overridden_by_a_method() -> None:
    class Bad(Account):
        async def balance(self) -> int:
            return 0


REFUSED: list[tuple[Callable[[], None], str]] = [
    (sync_handler, r"run: an rpc is an async method"),
    (generator_handler, r"run: an rpc is an async method"),
    (unannotated, r"parameter 'amount' has no annotation"),
    (star_args, r"takes no `\*args: int`"),
    (star_kwargs, r"takes no `\*\*fields: int`"),
    (positional_only, r"parameter 'amount' is positional-only"),
    (without_self, r"its first parameter is `self`"),
    (like_an_attribute, r"Bad.cluster: every entity has 'cluster' already"),
    (like_the_state, r"every entity has 'state' already"),
    (like_a_durable_call, r"every entity has 'step' already"),
    (bad_type_name, r"Bad: a type name is 1 to 64 .* got 'my account'"),
    (bad_group, r"Bad: a shard group name is 1 to 64"),
    (bad_rpc_name, r"Bad.deposit: a rpc name is 1 to 64"),
    (one_name_twice, r"Bad.other: 'deposit' has the stored name 'deposit' already"),
    (no_state, r"Entity\[State\], or Entity\[None\]"),
    (zero_capacity, r"mailbox_capacity must be a whole number from 1 to 1000000, got 0"),
    (zero_concurrency, r"concurrency must be a whole number"),
    (idle_in_seconds, r"max_idle must be a timedelta, got 60"),
    (never_idle, r"max_idle must be above 0 s"),
    (retry_as_a_number, r"retry must be a Retry, got 3"),
    (unknown_keyword, r"colour"),
    (undeclarable_error, r"raises= takes subclasses of EntityError, got <class 'ValueError'>"),
    (one_code_twice, r"two errors of raises= have the code 'insufficient'"),
    (sync_hook, r"Bad.on_start must be async"),
    (rpc_overridden_by_a_method, r"Bad.balance overrides an rpc and is none"),
]


@pytest.mark.parametrize(("make", "text"), REFUSED, ids=[make.__name__ for make, _ in REFUSED])
def test_a_fault_is_a_type_error_when_the_class_is_made(make: Callable[[], None], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        make()


@given(st.text(max_size=70))
def test_a_name_is_taken_or_a_type_error(name: str) -> None:
    fits = 1 <= len(name) <= 64 and all(sign.isascii() and (sign.isalnum() or sign in "_.-") for sign in name)
    if fits:
        made = type("Made", (Plain,), {}, name=name)
        assert define(made).name == name
        return
    with pytest.raises(TypeError, match="a type name"):
        type("Made", (Plain,), {}, name=name)


# --- what is refused when the types are resolved ---


class Opaque:
    pass


class Unsendable(EntityError):
    what: Opaque


class TakesOpaque(Entity[None]):
    @rpc
    async def run(self, what: list[Opaque]) -> None: ...


class ReturnsOpaque(Entity[None]):
    @rpc
    async def run(self) -> Opaque:
        return Opaque()


class RaisesOpaque(Entity[None]):
    @rpc(raises=[Unsendable])
    async def run(self) -> None: ...


class OpaqueState(Entity[Opaque]): ...


class RequiredState(Entity[Required]): ...


class NowhereState(Entity["Nowhere"]): ...


class NowhereArgument(Entity[None]):
    @rpc
    async def run(self, what: "Nowhere") -> None: ...


@pytest.mark.parametrize(
    ("entity", "text"),
    [
        (TakesOpaque, "TakesOpaque.run: parameter 'what': Opaque is no type that can be sent"),
        (ReturnsOpaque, "ReturnsOpaque.run: its result: Opaque is no type"),
        (RaisesOpaque, "RaisesOpaque.run: Unsendable.what: Opaque is no type"),
        (OpaqueState, "OpaqueState: its state: Opaque is no type"),
        (RequiredState, "RequiredState: its state cannot be made without arguments"),
        (NowhereState, "NowhereState: its state: 'Nowhere' is not known at run time"),
        (NowhereArgument, "NowhereArgument.run: 'Nowhere' is not known at run time"),
        (Entity, "Entity itself is no type of entity"),
    ],
)
def test_types_are_checked_when_they_are_resolved(entity: type[Entity[Any]], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        define(entity)
