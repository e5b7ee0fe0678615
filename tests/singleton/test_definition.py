"""What may be registered as a singleton, and what is refused before anything is joined."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from redis_cluster_kit import Cluster, Registry, SingletonContext


class Progress(msgspec.Struct):
    last_id: str = ""
    seen: int = 0


class Needy(msgspec.Struct):
    name: str


async def idle(ctx: SingletonContext[Any]) -> None: ...


def test_a_decorator_returns_the_function_unchanged() -> None:
    registry, cluster = Registry(), Cluster("redis://nowhere")
    assert registry.singleton("a", state=Progress)(idle) is idle
    assert cluster.singleton("a")(idle) is idle
    assert [one.name for one in registry.singletons()] == ["a"]


def test_a_name_twice_is_refused() -> None:
    registry = Registry()
    registry.singleton("a")(idle)
    with pytest.raises(ValueError, match="two singletons have the name 'a'"):
        registry.singleton("a")(idle)
    cluster = Cluster("redis://nowhere")
    cluster.singleton("a")(idle)
    with pytest.raises(ValueError, match="two singletons have the name 'a'"):
        cluster.include(registry)


def test_a_name_that_came_later_into_an_included_registry_is_refused_on_closing() -> None:
    inner, outer = Registry(), Registry()
    outer.include(inner)
    outer.singleton("a")(idle)
    inner.singleton("a")(idle)
    with pytest.raises(ValueError, match="two singletons have the name 'a'"):
        outer.close()


def test_registration_ends_with_closing() -> None:
    registry = Registry()
    later = registry.singleton("a")
    registry.close()
    with pytest.raises(RuntimeError, match="too late"):
        later(idle)


def sync(ctx: Any) -> None: ...


async def of_two(ctx: Any, other: int) -> None: ...


async def of_none() -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "error", "says"),
    [
        (sync, {}, TypeError, "must be async"),
        (of_two, {}, TypeError, "takes the context"),
        (of_none, {}, TypeError, "takes the context"),
        (idle, {"state": Needy}, TypeError, "pass initial="),
        (idle, {"state": Progress, "initial": Needy("x")}, TypeError, "initial must be a Progress"),
        (idle, {"initial": Progress()}, TypeError, "no state="),
        (idle, {"state": "Progress"}, TypeError, "state must be a type"),
        (idle, {"expected_interval": 5}, TypeError, "expected_interval must be a timedelta"),
        (idle, {"state": Progress, "state_ttl": timedelta()}, TypeError, "state_ttl must be"),
        (idle, {"on_become_leader": sync}, TypeError, "must be async"),
        (idle, {"on_lose_leadership": of_two}, TypeError, "takes the context"),
        (idle, {"state_version": 0}, TypeError, "state_version"),
        (idle, {"shard_group": "no spaces"}, ValueError, "shard group"),
    ],
)
def test_what_cannot_work_is_refused(function: Any, options: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Registry().singleton("a", **options)(function)


def test_a_bad_name_is_refused() -> None:
    with pytest.raises(ValueError, match="singleton name"):
        Registry().singleton("a b")(idle)


def test_a_state_nobody_can_save_is_refused_on_closing() -> None:
    class Odd(msgspec.Struct):
        value: complex = 1j

    registry = Registry()
    registry.singleton("a", state=Odd)(idle)
    with pytest.raises(TypeError, match="singleton 'a': its state cannot be saved"):
        registry.close()


def test_a_state_without_defaults_has_its_initial_value() -> None:
    registry = Registry()
    registry.singleton("a", state=Needy, initial=Needy("first"))(idle)
    registry.close()
    (definition,) = registry.singletons()
    first = definition.decode(definition.first())
    assert first == Needy("first")
    assert first is not definition.initial
