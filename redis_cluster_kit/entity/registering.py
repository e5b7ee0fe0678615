"""The decorators that a registry and a cluster have in common. They define; keeping is each one's own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, overload

from redis_cluster_kit.entity.singleton import Hook, Main, SingletonDefinition

S = TypeVar("S")


class Registering:
    """Something that functions can be registered with."""

    @overload
    def singleton(
        self,
        name: str,
        /,
        *,
        state: type[S],
        initial: S | None = None,
        shard_group: str = "default",
        state_version: int = 1,
        expected_interval: timedelta | None = None,
        state_ttl: timedelta | None = None,
        on_become_leader: Hook[S] | None = None,
        on_lose_leadership: Hook[S] | None = None,
    ) -> Callable[[Main[S]], Main[S]]: ...
    @overload
    def singleton(
        self,
        name: str,
        /,
        *,
        state: None = None,
        shard_group: str = "default",
        expected_interval: timedelta | None = None,
        on_become_leader: Hook[None] | None = None,
        on_lose_leadership: Hook[None] | None = None,
    ) -> Callable[[Main[None]], Main[None]]: ...
    def singleton(self, name: str, /, **options: Any) -> Callable[[Main[Any]], Main[Any]]:
        """Register the decorated async function as a singleton: one leader in the whole cluster runs it.

        `state`: the type of its durable state; `initial`: its first value, the type's own defaults unless
        given. `state_version` is stored beside it. `expected_interval`: without an execution for twice as
        long, readiness fails. `state_ttl`: the state is forgotten when nobody has led the singleton for so
        long. `on_become_leader` runs once before a leader's first run, `on_lose_leadership` once at the end,
        also when the lease is lost; either takes the context or nothing.
        """

        def register(main: Main[Any]) -> Main[Any]:
            self.add_singleton(SingletonDefinition(name=name, main=main, **options))
            return main

        return register

    def add_singleton(self, definition: SingletonDefinition) -> None:
        """Add a definition; `singleton` makes one of what it decorates."""
        raise NotImplementedError
