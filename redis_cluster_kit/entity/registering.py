"""The decorators that a registry and a cluster have in common. They define; keeping is each one's own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, overload
from zoneinfo import ZoneInfo

from redis_cluster_kit.entity.cron import (
    CircuitBreaker,
    CronDefinition,
    CronFunction,
    ExpressionLike,
    Overlap,
)
from redis_cluster_kit.entity.cron_expression import Schedule, as_expression, as_zone
from redis_cluster_kit.entity.definition import Retry
from redis_cluster_kit.entity.singleton import Hook, Main, SingletonDefinition

S = TypeVar("S")
C = TypeVar("C", bound=CronFunction)


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

    def cron(
        self,
        expression: ExpressionLike,
        /,
        *,
        name: str,
        timezone: str | ZoneInfo = "UTC",
        shard_group: str = "default",
        skip_if_older_than: timedelta = timedelta(days=1),
        calculate_next_run_from_previous: bool = False,
        overlap: Overlap = "allow",
        retry: Retry = Retry(),  # noqa: B008 - frozen
        circuit_breaker: CircuitBreaker | None = None,
    ) -> Callable[[C], C]:
        """Register the decorated async function as a cron: it runs once in the cluster for each instant.

        `expression`: five fields, six with the seconds last, or what was parsed of them. After a time without
        runners the last missed instant is made up for, unless it is older than `skip_if_older_than`; with
        `calculate_next_run_from_previous` all that are not older, in order. `overlap="skip"` lets an instant
        pass while an earlier one is not done. `retry` is for a tick that raises; then it is a dead letter.
        """
        schedule = Schedule(as_expression(expression), as_zone(timezone))

        def register(main: C) -> C:
            self.add_cron(
                CronDefinition(
                    name=name,
                    main=main,
                    schedule=schedule,
                    shard_group=shard_group,
                    skip_if_older_than=skip_if_older_than,
                    calculate_next_run_from_previous=calculate_next_run_from_previous,
                    overlap=overlap,
                    retry=retry,
                    circuit_breaker=circuit_breaker,
                )
            )
            return main

        return register

    def add_cron(self, definition: CronDefinition) -> None:
        """Add a definition; `cron` makes one of what it decorates."""
        raise NotImplementedError
