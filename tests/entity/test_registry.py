"""Registries: what they take, what they refuse, and that they close for good."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_cluster_kit.entity import Entity, Registry, define, rpc


class Account(Entity[None], name="account"):
    @rpc
    async def touch(self) -> None: ...


class Order(Entity[None], name="order"): ...


class OtherAccount(Entity[None], name="account"): ...


class Opaque: ...


class Broken(Entity[None]):
    @rpc
    async def run(self, what: Opaque) -> None: ...


def test_it_holds_what_was_added_in_order() -> None:
    registry = Registry()
    assert registry.entity(Order) is Order
    registry.entity(Account)
    assert list(registry.entities()) == [Order, Account]
    assert dict(registry.close()) == {"order": define(Order), "account": define(Account)}


def test_it_is_a_decorator_that_keeps_the_class() -> None:
    registry = Registry()

    @registry.entity
    class Local(Entity[None]): ...

    assert list(registry.entities()) == [Local]


@pytest.mark.parametrize("second", [Account, OtherAccount])
def test_a_name_twice_is_refused_with_both_classes(second: type[Entity[Any]]) -> None:
    registry = Registry()
    registry.entity(Account)
    with pytest.raises(
        ValueError, match=rf"two entities have the name 'account': .*Account and .*{second.__name__}"
    ):
        registry.entity(second)
    assert list(registry.entities()) == [Account]


@pytest.mark.parametrize(
    "wrong", [Entity, Opaque, Account(), "account", None], ids=["base", "name", "instance", "text", "none"]
)
def test_only_entity_classes_are_taken(wrong: Any) -> None:
    with pytest.raises(TypeError, match="an entity is a class derived from Entity"):
        Registry().entity(wrong)


def test_once_closed_nothing_is_added() -> None:
    registry = Registry()
    registry.entity(Account)
    first = registry.close()
    assert registry.is_closed
    with pytest.raises(RuntimeError, match="before the cluster is entered"):
        registry.entity(Order)
    with pytest.raises(RuntimeError, match="before the cluster is entered"):
        registry.include(Registry())
    assert registry.close() == first


def test_what_is_included_counts_even_if_added_later_and_closes_too() -> None:
    app, billing = Registry(), Registry()
    app.entity(Account)
    app.include(billing)
    billing.entity(Order)
    assert set(app.close()) == {"account", "order"}
    assert billing.is_closed
    with pytest.raises(RuntimeError):
        billing.entity(OtherAccount)


def test_a_registry_may_serve_two_clusters() -> None:
    billing = Registry()
    billing.entity(Order)
    for _ in range(2):
        app = Registry()
        app.include(billing)
        assert set(app.close()) == {"order"}


def test_names_are_unique_across_registries() -> None:
    app, billing = Registry(), Registry()
    app.entity(Account)
    billing.entity(OtherAccount)
    with pytest.raises(ValueError, match="two entities have the name 'account'"):
        app.include(billing)
    late = Registry()
    app.include(late)
    late.entity(OtherAccount)
    with pytest.raises(ValueError, match="two entities have the name 'account'"):
        app.close()
    assert not app.is_closed
    assert not late.is_closed


def test_registries_do_not_include_themselves() -> None:
    first, second, third = Registry(), Registry(), Registry()
    first.include(second)
    second.include(third)
    for registry in (first, second, third):
        with pytest.raises(ValueError, match="cannot include itself"):
            third.include(registry)


def test_a_type_that_cannot_be_defined_closes_nothing() -> None:
    registry = Registry()
    registry.entity(Broken)
    with pytest.raises(TypeError, match="Opaque is no type that can be sent"):
        registry.close()
    assert not registry.is_closed


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abcdef")), max_size=12))
def test_names_stay_unique_whatever_is_added_where(steps: list[tuple[int, str]]) -> None:
    """Registry 0 includes 1, 2 and 3 from the start, so a clash may only show when it is closed."""
    registries = [Registry() for _ in range(4)]
    for registry in registries[1:]:
        registries[0].include(registry)
    taken: list[str] = []
    for place, name in steps:
        try:
            registries[place].entity(type("Made", (Order,), {}, name=name))
        except ValueError:
            assert name in taken
        else:
            taken.append(name)
    if len(set(taken)) == len(taken):
        assert sorted(registries[0].close()) == sorted(taken)
    else:
        with pytest.raises(ValueError, match="two entities have the name"):
            registries[0].close()
