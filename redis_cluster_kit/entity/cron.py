"""What users define as a cron: its function, when it is due, what becomes of failures; and its ticks.

Checked where it is registered. A tick is a message to an internal entity, one type a cron and one entity an
instant: everything that holds for messages holds for ticks. Planning and running them is the runtime's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast

from croniter import croniter

from redis_cluster_kit.identity import check_name
from redis_cluster_kit.snowflake import Snowflake

from .context import cluster_required
from .cron_expression import CronExpression, Schedule
from .definition import Entity, Retry
from .durable import Durable, DurableRun
from .rpcs import rpc
from .singleton import check_async
from .turn import Turn, current_turn

__all__ = [
    "TICK_MAILBOX",
    "CircuitBreaker",
    "CronDefinition",
    "Tick",
    "TickEntity",
    "TickRunner",
    "tick_type",
]

T = TypeVar("T")

TICK_TYPE = "cron."
"""What the type of a cron's ticks begins with."""
_LONGEST_NAME = 64 - len(TICK_TYPE)
TICK_MAILBOX = 4
"""A tick has one message; a repeat long after may wait beside it."""
_TICK_IDLE = timedelta(milliseconds=50)

Overlap: TypeAlias = Literal["allow", "skip"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CircuitBreaker:
    """Stops a cron that keeps failing: after so many failed attempts in a row its instants are skipped.

    The whole cluster counts together, and each attempt of a tick counts. When `reset_after` has passed since
    the last failure one instant is tried: if it ends well all is as before, if not the wait begins anew.
    """

    failures: int = 5
    """How many failed attempts in a row open it."""
    reset_after: timedelta = timedelta(minutes=5)
    """For how long instants are skipped before one is tried."""

    def __post_init__(self) -> None:
        if type(self.failures) is not int or not 1 <= self.failures <= 1_000_000:
            raise ValueError(f"CircuitBreaker.failures is {self.failures!r}, it must be from 1 to 1000000")
        if not isinstance(self.reset_after, timedelta) or self.reset_after <= timedelta():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"CircuitBreaker.reset_after is {self.reset_after!r}, it must be above 0 s")


class RunningTick(Protocol):
    """What a tick asks of who runs it."""

    @property
    def name(self) -> str: ...
    @property
    def scheduled(self) -> datetime: ...
    @property
    def turn(self) -> Turn: ...
    @property
    def cluster(self) -> Any: ...
    def resource(self, type: type[Any], /) -> Any: ...
    def generate_id(self) -> Snowflake: ...
    async def heartbeat(self) -> None: ...


class Tick(Durable):
    """One instant of a cron, as its function sees it. What it sends goes out at once."""

    def __init__(self, running: RunningTick) -> None:
        self._running = running

    def __repr__(self) -> str:
        return f"Tick({self.name!r}, {self.scheduled.isoformat()}, attempt={self.attempt})"

    @property
    def name(self) -> str:
        """The cron's name."""
        return self._running.name

    @property
    def scheduled(self) -> datetime:
        """The instant it stands for, an aware datetime in UTC: the same in every attempt."""
        return self._running.scheduled

    @property
    def attempt(self) -> int:
        """Which attempt this is; 1 is the first."""
        return self._running.turn.attempt

    @property
    def fence(self) -> int:
        """The number of the lease, to hand to stores of your own: a later owner's is higher."""
        return self._running.turn.fence

    @property
    def cluster(self) -> Any:
        """The cluster this runs in; untyped, since its class stands above this layer."""
        return self._running.cluster

    def resource(self, type: type[T], /) -> T:
        """Return what the cluster's `lifespan` provided for `type`."""
        return cast("T", self._running.resource(type))

    def generate_id(self) -> Snowflake:
        """Return a new id, unique in the cluster."""
        return self._running.generate_id()

    async def heartbeat(self) -> None:
        """Note now that it is alive, as is done every 30 s; `FencedError` if another runner has it now."""
        await self._running.heartbeat()

    def _durable_run(self) -> DurableRun:
        """Its execution is its message: unlike what it sends, what it remembers belongs to that."""
        turn = self._running.turn
        run = None if turn.is_over else turn.durable_run()
        if run is None:
            raise cluster_required("a durable call (step, sleep, deferred)")
        return run


CronFunction: TypeAlias = Callable[[Tick], Coroutine[Any, Any, None]]
ExpressionLike: TypeAlias = str | CronExpression | croniter


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CronDefinition:
    """One registered cron."""

    name: str
    main: CronFunction
    schedule: Schedule
    shard_group: str = "default"
    skip_if_older_than: timedelta = timedelta(days=1)
    calculate_next_run_from_previous: bool = False
    overlap: Overlap = "allow"
    retry: Retry = dataclasses.field(default_factory=Retry)
    circuit_breaker: CircuitBreaker | None = None
    entity: type[Entity[None]] = dataclasses.field(init=False)
    """What its ticks are sent to."""

    def __post_init__(self) -> None:
        check_name("cron", self.name)
        if len(self.name) > _LONGEST_NAME:
            raise ValueError(f"a cron name has at most {_LONGEST_NAME} characters, got {self.name!r}")
        check_name("shard group", self.shard_group)
        label = f"cron {self.name!r}"
        check_async(label, self.main, takes=(1,), what="the tick")
        if not isinstance(self.skip_if_older_than, timedelta) or self.skip_if_older_than <= timedelta():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"{label}: skip_if_older_than must be a timedelta above 0, got {self.skip_if_older_than!r}"
            )
        if self.overlap not in ("allow", "skip"):
            raise ValueError(f"{label}: overlap must be 'allow' or 'skip', got {self.overlap!r}")
        for keyword, kind in (("retry", Retry), ("circuit_breaker", CircuitBreaker | None)):
            if not isinstance(getattr(self, keyword), kind):
                raise TypeError(f"{label}: {keyword} cannot be {getattr(self, keyword)!r}")
        object.__setattr__(self, "entity", _tick_entity(self))

    @property
    def type(self) -> str:
        """The type of the entities that its ticks are sent to."""
        return tick_type(self.name)


class TickRunner:
    """Runs ticks; the runtime has one, and ticks find it as a resource."""

    async def run(self, cron: CronDefinition, turn: Turn) -> None:
        """Bring the tick of this turn to its end."""
        raise NotImplementedError


def tick_type(name: str) -> str:
    """Return the type of the entities that a cron's ticks are sent to."""
    return f"{TICK_TYPE}{name}"


class TickEntity(Entity[None], name=f"{TICK_TYPE}base"):
    """What ticks are sent to: a type a cron, an entity an instant."""


def _tick_entity(cron: CronDefinition) -> type[Entity[None]]:
    class Ticks(
        TickEntity,
        name=cron.type,
        mailbox_capacity=TICK_MAILBOX,
        max_idle=_TICK_IDLE,
        shard_group=cron.shard_group,
        retry=cron.retry,
    ):
        @rpc
        async def run(self) -> None:
            turn = current_turn()
            assert turn is not None
            await self.resource(TickRunner).run(cron, turn)

    return Ticks
