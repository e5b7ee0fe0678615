"""What users define as a singleton: its function, its state, and the context the function works with.

Checked when it is registered; types are resolved when the cluster is entered. Leading it is the runtime's.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, cast

import msgspec

from redis_cluster_kit import codec
from redis_cluster_kit.entity.durable import Durable, DurableRun
from redis_cluster_kit.errors import ReasonedError
from redis_cluster_kit.identity import check_name
from redis_cluster_kit.snowflake import Snowflake

__all__ = ["Leadership", "SingletonContext", "SingletonDefinition", "SingletonMetadata", "SingletonState"]

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")

DEEPEST = 500


class SingletonMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """What the system keeps of a singleton, across leaders; a killed leader may take its last 2 s with it."""

    last_run: datetime | None = None
    """When its last execution ended without an error: a state write, a round of `every`, or the function's
    end."""
    run_count: int = 0
    """How many executions ended without an error."""
    last_error: str | None = None
    """What the last failure raised. It stays: `last_run` after `failed_at` means that it is well again."""
    failed_at: datetime | None = None
    heartbeat: datetime | None = None
    """When its leader said last that it is alive."""
    since: datetime | None = None
    """When somebody led it for the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SingletonState(Generic[S]):
    """A singleton's state as some pod sees it, and how old it is."""

    state: S
    version: int
    """How often it has been saved."""
    age: timedelta
    """How long ago this version was saved."""
    schema_version: int


class Leadership(Protocol):
    """What a context asks of the one who leads the singleton."""

    @property
    def name(self) -> str: ...
    @property
    def fence(self) -> int: ...
    @property
    def cluster(self) -> Any: ...
    @property
    def metadata(self) -> SingletonMetadata: ...
    def read(self) -> Any: ...
    async def write(self, change: Callable[[Any], Any], /) -> None: ...
    async def heartbeat(self) -> None: ...
    def every(self, interval: timedelta, /) -> AsyncIterator[datetime]: ...
    def resource(self, type: type[Any], /) -> Any: ...
    def generate_id(self) -> Snowflake: ...
    def durable_run(self) -> DurableRun: ...


class SingletonContext(Durable, Generic[S]):
    """What a singleton's function and hooks work with: its state, its fence, and the cluster's resources.

    Its execution is the work up to its next state write, the end of a round of `every`, or the function's
    end: what `step`, `sleep` and `deferred` remember is past then.
    """

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership

    def __repr__(self) -> str:
        return f"SingletonContext({self.name!r}, fence={self.fence})"

    @property
    def name(self) -> str:
        """The singleton's name."""
        return self._leadership.name

    @property
    def state(self) -> S:
        """A copy of the state as it was saved last: changing it saves nothing."""
        return cast("S", self._leadership.read())

    @property
    def metadata(self) -> SingletonMetadata:
        """What the system keeps: last run, run count, last error."""
        return self._leadership.metadata

    @property
    def fence(self) -> int:
        """The number of the lease, to hand to stores of your own: a later leader's is higher."""
        return self._leadership.fence

    @property
    def cluster(self) -> Any:
        """The cluster this runs in; untyped, since its class stands above this layer."""
        return self._leadership.cluster

    async def set(self, state: S, /) -> None:
        """Save `state`: when this returns it is in the database.

        `StatePersistFailedError`: the stores did not take it in time; calling again is safe.
        `FencedError`: another runner leads now.
        """
        await self._leadership.write(lambda _: state)

    async def update(self, **fields: Any) -> None:
        """Save the state with these fields changed; unknown fields and wrong types are a TypeError."""
        await self._leadership.write(lambda state: _changed(state, fields))

    async def patch(self, type: Callable[P, S], /, *args: P.args, **fields: P.kwargs) -> None:
        """The same, for type checkers: `ctx.patch(Progress, seen=1)` changes the fields that are given."""
        given = dict(zip(_field_names(type), args, strict=False)) | fields
        await self._leadership.write(lambda state: _patched(state, type, given))

    async def heartbeat(self) -> None:
        """Say now that it is alive, as its leader does every 30 s; `HeartbeatFailedError` if that fails."""
        await self._leadership.heartbeat()

    def every(self, interval: timedelta, /) -> AsyncIterator[datetime]:
        """Yield the time at once and then every `interval`; rounds missed while one took longer are skipped.

        Each round is an execution: it counts for `expected_interval` and in the metadata.
        """
        return self._leadership.every(interval)

    def resource(self, type: type[T], /) -> T:
        """Return what the cluster's `lifespan` provided for `type`."""
        return cast("T", self._leadership.resource(type))

    def generate_id(self) -> Snowflake:
        """Return a new id, unique in the cluster."""
        return self._leadership.generate_id()

    def _durable_run(self) -> DurableRun:
        return self._leadership.durable_run()


Main: TypeAlias = Callable[[SingletonContext[S]], Coroutine[Any, Any, None]]
Hook: TypeAlias = Main[S] | Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SingletonDefinition:
    """One registered singleton."""

    name: str
    main: Main[Any]
    state: Any = None
    """The state's type; None: it has no state."""
    initial: Any = None
    shard_group: str = "default"
    state_version: int = 1
    expected_interval: timedelta | None = None
    state_ttl: timedelta | None = None
    on_become_leader: Hook[Any] | None = None
    on_lose_leadership: Hook[Any] | None = None

    def __post_init__(self) -> None:
        check_name("singleton", self.name)
        check_name("shard group", self.shard_group)
        label = f"singleton {self.name!r}"
        check_async(label, self.main, takes=(1,))
        for hook in (self.on_become_leader, self.on_lose_leadership):
            if hook is not None:
                check_async(f"{label}: hook", hook, takes=(0, 1))
        for keyword in ("expected_interval", "state_ttl"):
            value = getattr(self, keyword)
            if value is not None and (not isinstance(value, timedelta) or value <= timedelta()):
                raise TypeError(f"{label}: {keyword} must be a timedelta above 0, got {value!r}")
        if type(self.state_version) is not int or not 1 <= self.state_version <= 1_000_000:
            raise TypeError(
                f"{label}: state_version must be a whole number from 1, got {self.state_version!r}"
            )
        self._check_state(label)

    def _check_state(self, label: str) -> None:
        if self.state is None:
            if self.initial is not None:
                raise TypeError(f"{label} has an initial state and no state=")
        elif not isinstance(self.state, type):
            raise TypeError(f"{label}: state must be a type, got {self.state!r}")
        elif self.initial is not None and not isinstance(self.initial, self.state):
            raise TypeError(f"{label}: initial must be a {self.state.__name__}, got {self.initial!r}")
        elif self.initial is None:
            try:
                self.state()
            except TypeError as error:
                raise TypeError(
                    f"{label}: its state cannot be made without arguments ({error}): give its fields "
                    "defaults, or pass initial="
                ) from error

    def resolve(self) -> None:
        """See that the initial state can be saved and read back; a TypeError if not."""
        if self.state is None:
            return
        try:
            codec.check_type(self.state)
            self.decode(self.first())
        except (TypeError, NameError, ReasonedError) as error:
            raise TypeError(f"singleton {self.name!r}: its state cannot be saved: {error}") from error

    def first(self) -> bytes:
        """Return the initial state as it is saved."""
        return self.encode(self.state() if self.initial is None else self.initial)

    def encode(self, state: Any) -> bytes:
        """Return the bytes of a state; its type has been checked."""
        return codec.encode(state, limit=None, max_depth=DEEPEST)

    def decode(self, content: bytes) -> Any:
        """Return the state of these bytes, new each time; None if there is no state."""
        return None if self.state is None else codec.decode(content, self.state, max_depth=DEEPEST)

    def checked(self, state: Any) -> bytes:
        """Return the bytes of a state a user hands in; TypeError if it does not fit the declared type."""
        if self.state is None:
            raise TypeError(f"singleton {self.name!r} has no state: register it with state=")
        if not isinstance(state, self.state):
            raise TypeError(f"singleton {self.name!r}: expected a {self.state.__name__}, got {state!r}")
        try:
            content = self.encode(state)
            self.decode(content)
        except ReasonedError as error:
            raise TypeError(f"singleton {self.name!r}: the state does not fit its type: {error}") from error
        return content


def takes_context(hook: Hook[Any]) -> bool:
    """Whether a hook wants the context handed in."""
    return len(inspect.signature(hook).parameters) == 1


def check_async(label: str, function: object, *, takes: tuple[int, ...], what: str = "the context") -> None:
    """See that a function is async and can be called with so many arguments; a TypeError if not."""
    called = getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__ will do
    if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)):
        raise TypeError(f"{label} must be async, write `async def`, got {function!r}")
    needed = [
        parameter
        for parameter in inspect.signature(cast("Callable[..., Any]", function)).parameters.values()
        if parameter.default is inspect.Parameter.empty
    ]
    if len(needed) not in takes:
        raise TypeError(f"{label} takes {what} and nothing else, got {function!r}")


def _field_names(type: Any) -> tuple[str, ...]:
    """The fields of a state type, in the order its constructor takes them; TypeError if it has none."""
    for attribute in ("__struct_fields__", "__dataclass_fields__", "model_fields"):
        if (found := getattr(type, attribute, None)) is not None:
            return tuple(found)
    raise TypeError(f"a {getattr(type, '__name__', type)} has no fields to update: use ctx.set(...)")


def _changed(state: Any, fields: dict[str, Any]) -> Any:
    names = _field_names(type(state))
    if unknown := sorted(fields.keys() - set(names)):
        raise TypeError(f"{type(state).__name__} has no field {unknown[0]!r}; it has {', '.join(names)}")
    return type(state)(**{name: getattr(state, name) for name in names} | fields)


def _patched(state: Any, kind: Any, fields: dict[str, Any]) -> Any:
    if kind is not type(state):
        raise TypeError(f"the state is a {type(state).__name__}, not a {getattr(kind, '__name__', kind)}")
    return _changed(state, fields)
