"""`@rpc`: marks the methods of an entity that messages may call, and says what using one looks like.

Holds the declaration and the types of a call. A declaration is checked by its shape when the decorator
runs, by its types when the cluster is entered. Delivering a call is not done here.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from redis_cluster_kit.entity.context import cluster_required
from redis_cluster_kit.errors import EntityError

__all__ = [
    "DEFAULT",
    "NO_OPTIONS",
    "BoundRpc",
    "CallOptions",
    "Default",
    "Durability",
    "Receipt",
    "RpcCall",
    "RpcDescriptor",
    "RpcMethod",
    "replicated",
    "rpc",
]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
E = TypeVar("E")

Handler = Callable[..., Coroutine[Any, Any, Any]]


class Default(enum.Enum):
    """The type of `DEFAULT`."""

    DEFAULT = "default"

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = Default.DEFAULT
"""Not given: `timeout=DEFAULT` waits as long as the cluster's settings say, `timeout=None` for ever."""


class Receipt(Protocol[R_co]):
    """A message that is safe in its mailbox."""

    @property
    def message_id(self) -> str:
        """Text that can be stored: any pod finds the message by it."""
        ...

    async def result(self, *, timeout: float | timedelta | Default | None = DEFAULT) -> R_co:
        """Wait for the handler's answer."""
        ...


@dataclass(frozen=True, slots=True)
class Durability:
    """How many replicas have a message before its sender goes on; made by `replicated(n)`."""

    replicas: int

    def __post_init__(self) -> None:
        if type(self.replicas) is not int or not 1 <= self.replicas <= 100:
            raise ValueError(f"replicated takes a whole number from 1 to 100, got {self.replicas!r}")


def replicated(replicas: int, /) -> Durability:
    """Let a send return only when so many replicas have the message: fewer losses at a failover, not none."""
    return Durability(replicas)


@dataclass(frozen=True, kw_only=True, slots=True)
class CallOptions:
    """How one message is sent; made by `.options(...)`."""

    delay: timedelta | None = None
    """Deliver this much later. Excludes `deliver_at`."""
    deliver_at: datetime | None = None
    """Deliver at this instant, an aware datetime; one that has passed means now."""
    idempotency_key: str | None = None
    """The same key again, to the same entity, gets the first reply and runs nothing."""
    timeout: float | timedelta | Default | None = DEFAULT
    """How long the caller waits, from delivery time on; None: for ever. It never withdraws the message."""
    durability: Durability | None = None
    """How safe the message must be before the sender goes on; None: in the primary's memory."""

    def __post_init__(self) -> None:
        if self.delay is not None and self.deliver_at is not None:
            raise ValueError("give delay or deliver_at, not both")
        if self.delay is not None and self.delay < timedelta():
            raise ValueError(f"delay must not be negative, got {self.delay}")
        if self.deliver_at is not None and self.deliver_at.utcoffset() is None:
            raise ValueError(f"deliver_at must be an aware datetime, got {self.deliver_at.isoformat()}")
        if self.idempotency_key is not None and not 1 <= len(self.idempotency_key.encode()) <= 512:
            raise ValueError("an idempotency_key has 1 to 512 UTF-8 bytes")
        seconds = self.timeout.total_seconds() if isinstance(self.timeout, timedelta) else self.timeout
        # Written so that NaN is refused too.
        if isinstance(seconds, int | float) and not seconds > 0:
            raise ValueError(f"timeout must be above 0 s, got {seconds:g}; None waits for ever")


NO_OPTIONS: Final = CallOptions()


class RpcCall(Generic[P, R_co]):
    """An rpc of one entity with its options: call it to ask, `.send` to tell.

    This one belongs to no cluster and refuses both; the calls of a proxy are made from it.
    """

    __slots__ = ("call_options", "label")

    def __init__(self, label: str, call_options: CallOptions) -> None:
        self.label = label
        self.call_options = call_options

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label}>"

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:  # noqa: ARG002 - for subclasses
        """Send the message and wait for the handler's answer."""
        raise cluster_required(f"asking {self.label}")

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> Receipt[R_co]:  # noqa: ARG002
        """Send the message; returns as soon as it is safe in the mailbox."""
        raise cluster_required(f"{self.label}.send")


class BoundRpc(RpcCall[P, R_co]):
    """What `alice.deposit` and `self.deposit` are."""

    __slots__ = ()

    def options(
        self,
        *,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
        idempotency_key: str | None = None,
        timeout: float | timedelta | Default | None = DEFAULT,
        durability: Durability | None = None,
    ) -> RpcCall[P, R_co]:
        """Return the same call with options; a contradiction is a ValueError at once."""
        return self.with_options(
            CallOptions(
                delay=delay,
                deliver_at=deliver_at,
                idempotency_key=idempotency_key,
                timeout=timeout,
                durability=durability,
            )
        )

    def with_options(self, options: CallOptions) -> RpcCall[P, R_co]:
        """Return the same call with these options."""
        return RpcCall(self.label, options)


class OwnRpc(BoundRpc[P, R_co]):
    """`self.deposit`: calling it is a plain method call in the same turn."""

    __slots__ = ("_handler", "_instance", "_name")

    def __init__(self, label: str, name: str, handler: Handler, instance: Any) -> None:
        super().__init__(label, NO_OPTIONS)
        self._name = name
        self._handler = handler
        self._instance = instance

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the handler here and now, as part of the present turn."""
        return cast("R_co", await self._handler(self._instance, *args, **kwargs))

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> Receipt[R_co]:
        """Put a message into the entity's own mailbox; it leaves with this turn's commit."""
        return await self.with_options(NO_OPTIONS).send(*args, **kwargs)

    def with_options(self, options: CallOptions) -> RpcCall[P, R_co]:
        activation = self._instance.__activation__
        if activation is None:
            raise cluster_required(self.label)
        return cast("RpcCall[P, R_co]", activation.call(self._name, options))


@dataclass(frozen=True, slots=True)
class RpcMethod(Generic[P, R_co]):
    """What `Account.deposit` is: a value that names the rpc of a type. It cannot be called."""

    entity: type[Any]
    """The class it was taken from, which may have inherited the rpc."""
    name: str
    """The stored name of the rpc."""

    def __repr__(self) -> str:
        return f"<rpc {self.entity.__name__}.{self.name}>"


class RpcDescriptor(Generic[P, R_co]):
    """One declared rpc, as it stands in the class body."""

    def __init__(
        self, handler: Handler, *, readonly: bool, name: str | None, raises: tuple[type[EntityError], ...]
    ) -> None:
        _check_shape(handler)
        _check_raises(handler, raises)
        self.handler: Final = handler
        self.readonly: Final = readonly
        self.name: Final = handler.__name__ if name is None else name
        self.raises: Final = raises
        self.__doc__ = handler.__doc__

    @overload
    def __get__(self, obj: None, owner: type[Any], /) -> RpcMethod[P, R_co]: ...
    @overload
    def __get__(self, obj: object, owner: type[Any] | None = None, /) -> BoundRpc[P, R_co]: ...
    def __get__(
        self, obj: object | None, owner: type[Any] | None = None, /
    ) -> RpcMethod[P, R_co] | BoundRpc[P, R_co]:
        if obj is not None:
            return OwnRpc(f"{type(obj).__name__}.{self.name}", self.name, self.handler, obj)
        assert owner is not None
        return RpcMethod(owner, self.name)


class RpcDecorator(Protocol):
    """What `rpc(...)` with keywords returns. Generic in the call, so it is solved for each method."""

    def __call__(
        self, handler: Callable[Concatenate[E, P], Coroutine[Any, Any, R]], /
    ) -> RpcDescriptor[P, R]: ...


@overload
def rpc(handler: Callable[Concatenate[E, P], Coroutine[Any, Any, R]], /) -> RpcDescriptor[P, R]: ...
@overload
def rpc(
    *, readonly: bool = False, name: str | None = None, raises: Sequence[type[EntityError]] = ()
) -> RpcDecorator: ...
def rpc(
    handler: Handler | None = None,
    /,
    *,
    readonly: bool = False,
    name: str | None = None,
    raises: Sequence[type[EntityError]] = (),
) -> Any:
    """Make an async method callable by message: `@rpc`, or `@rpc(readonly=True, raises=[Insufficient])`.

    `readonly`: the handler writes no state. `name`: what is stored, if the method is to be renamed.
    `raises`: declared errors, which are answers; anything else a handler raises is a failure and retried.
    """

    def declare(handler: Handler) -> RpcDescriptor[Any, Any]:
        return RpcDescriptor(handler, readonly=readonly, name=name, raises=tuple(raises))

    return declare if handler is None else declare(handler)


def _check_shape(handler: object) -> None:
    label = getattr(handler, "__qualname__", repr(handler))
    if not inspect.iscoroutinefunction(handler):
        raise TypeError(f"{label}: an rpc is an async method, write `async def`")
    parameters = list(inspect.signature(handler).parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise TypeError(f"{label}: an rpc is a method, its first parameter is `self`")
    for parameter in parameters[1:]:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise TypeError(f"{label}: an rpc takes no `{parameter}`, arguments travel by name and type")
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise TypeError(f"{label}: parameter {parameter.name!r} is positional-only, but travels by name")
        if parameter.annotation is inspect.Parameter.empty:
            raise TypeError(
                f"{label}: parameter {parameter.name!r} has no annotation, so nothing can check it"
            )


def _check_raises(handler: Handler, raises: tuple[object, ...]) -> None:
    codes: dict[str, object] = {}
    for error in raises:
        if not (isinstance(error, type) and issubclass(error, EntityError)) or error is EntityError:
            raise TypeError(f"{handler.__qualname__}: raises= takes subclasses of EntityError, got {error!r}")
        if codes.setdefault(error.code, error) is not error:
            raise TypeError(f"{handler.__qualname__}: two errors of raises= have the code {error.code!r}")
