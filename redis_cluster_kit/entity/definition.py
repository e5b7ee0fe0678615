"""What an entity is: the base class users derive from, and the definition that is read off a class.

Making a class checks what can be seen without resolving annotations; `define` resolves and checks the
rest, when a cluster is entered. Loading, running and saving an entity is done by others.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from types import FunctionType, MappingProxyType, NoneType
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast, get_args, get_origin, get_type_hints

from redis_cluster_kit import codec
from redis_cluster_kit.entity.arguments import Arguments
from redis_cluster_kit.entity.context import cluster_required
from redis_cluster_kit.entity.durable import Durable
from redis_cluster_kit.entity.rpcs import CallOptions, Handler, RpcCall, RpcDescriptor
from redis_cluster_kit.errors import EntityError
from redis_cluster_kit.identity import EntityAddress, check_name

__all__ = ["Activation", "Entity", "EntityDefinition", "Retry", "RpcDefinition", "define", "make_instance"]

S = TypeVar("S")
T = TypeVar("T")
E = TypeVar("E", bound="Entity[Any]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """How often, and after which pauses, a turn that raised is tried again: exponential, jittered."""

    base: timedelta = timedelta(milliseconds=200)
    """The pause after the first failure."""
    factor: float = 2
    """By how much each further pause is longer."""
    max_attempts: int = 5
    """The message is buried as a dead letter after this many failures."""

    def __post_init__(self) -> None:
        if self.base <= timedelta():
            raise ValueError(f"Retry.base is {self.base}, it must be above 0 s")
        if not 1 <= self.factor <= 100:
            raise ValueError(f"Retry.factor is {self.factor}, it must be from 1 to 100")
        if type(self.max_attempts) is not int or not 1 <= self.max_attempts <= 1_000:
            raise ValueError(f"Retry.max_attempts is {self.max_attempts!r}, it must be from 1 to 1000")


@dataclass(frozen=True, kw_only=True, slots=True)
class RpcDefinition:
    """One rpc with its types resolved."""

    name: str
    """The stored name."""
    attribute: str
    """The name of the method."""
    handler: Handler
    """The function of the class body; its first argument is the instance."""
    readonly: bool
    parameters: Mapping[str, Any]
    """The types of the arguments by name, without `self`."""
    required: frozenset[str]
    """The arguments without a default."""
    result: Any
    """The return annotation; `Any` if there is none."""
    raises: Mapping[str, type[EntityError]]
    """The declared errors by code."""
    arguments: Arguments
    """How its arguments travel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EntityDefinition:
    """Everything a cluster needs to know about a type of entity; the same for all its instances."""

    name: str
    """The stored name of the type."""
    entity: type[Entity[Any]]
    state: Any
    """The state's type; None: there is no durable state."""
    rpcs: Mapping[str, RpcDefinition]
    """The rpcs by their stored names."""
    shard_group: str
    capacity: int | None
    """Of the mailbox; None: as the settings say."""
    max_idle: timedelta
    concurrency: int
    retry: Retry
    state_version: int


class Activation(Protocol):
    """What stands behind an instance that is live: how it learns who and where it is."""

    @property
    def address(self) -> EntityAddress: ...
    @property
    def cluster(self) -> Any: ...
    def resource(self, type: type[T], /) -> T: ...
    def keep_alive(self) -> None: ...
    def call(self, rpc: str, options: CallOptions, /) -> RpcCall[Any, Any]: ...


@dataclass(frozen=True, kw_only=True)
class _Options:
    """The class keywords but the name; a subclass keeps those of its base that it does not give itself."""

    shard_group: str = "default"
    capacity: int | None = None
    max_idle: timedelta = timedelta(minutes=10)
    concurrency: int = 1
    retry: Retry = Retry()
    state_version: int = 1

    def check(self, label: str) -> None:
        _check_name(label, "shard group", self.shard_group)
        if self.capacity is not None:
            _check_whole(label, "mailbox_capacity", self.capacity, 1_000_000)
        _check_whole(label, "concurrency", self.concurrency, 10_000)
        _check_whole(label, "state_version", self.state_version, 2**31 - 1)
        _check_kind(label, "max_idle", self.max_idle, timedelta)
        if self.max_idle <= timedelta():
            raise TypeError(f"{label}: max_idle must be above 0 s, got {self.max_idle}")
        _check_kind(label, "retry", self.retry, Retry)


@dataclass(frozen=True)
class _Declaration:
    """What a class says about itself, as far as it can be known before its annotations are resolved."""

    name: str
    options: _Options
    state: Any
    module: str
    """Where the state's annotation was written, if it has to be resolved."""
    rpcs: Mapping[str, RpcDescriptor[Any, Any]]
    """By attribute."""


class Entity(Durable, Generic[S]):
    """Addressable state with handlers. Derive from `Entity[State]`, or `Entity[None]` without durable state.

    Class keywords: `name` (stored; default: the class name), `mailbox_capacity`, `max_idle`, `concurrency`,
    `shard_group`, `state_version`, `retry`. Those not given are the base class', else the defaults. A fault
    in the class is a TypeError when it is made. Instances are made by the runtime, never by hand.
    """

    state: S
    """The durable state; changed in place or replaced, and saved with the turn."""

    __declaration__: ClassVar[_Declaration]
    __activation__: Activation | None = None

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        mailbox_capacity: int | None = None,
        max_idle: timedelta | None = None,
        concurrency: int | None = None,
        shard_group: str | None = None,
        state_version: int | None = None,
        retry: Retry | None = None,
    ) -> None:
        super().__init_subclass__()
        given = {
            "capacity": mailbox_capacity,
            "max_idle": max_idle,
            "concurrency": concurrency,
            "shard_group": shard_group,
            "state_version": state_version,
            "retry": retry,
        }
        _declare(cls, name, {key: value for key, value in given.items() if value is not None})

    @property
    def id(self) -> str:
        """The entity's id."""
        return self.address.id

    @property
    def address(self) -> EntityAddress:
        """Type, id and shard."""
        return _activation(self, "address").address

    @property
    def cluster(self) -> Any:
        """The cluster this instance is live in; untyped, since its class stands above this layer."""
        return _activation(self, "cluster").cluster

    def resource(self, type: type[T], /) -> T:
        """Return what the cluster's `lifespan` provided for `type`."""
        return _activation(self, "resource").resource(type)

    def keep_alive(self) -> None:
        """Count as busy now: `max_idle` begins anew."""
        _activation(self, "keep_alive").keep_alive()

    async def on_start(self) -> None:
        """Runs after the state is loaded; changes are saved with the first turn. Yours to override."""

    async def on_stop(self) -> None:
        """Runs before passivation or hand-off; changes are not saved. Yours to override."""

    def initial(self) -> S:
        """Return the state of an entity that has none yet: the state's type, called without arguments."""
        state = define(type(self)).state
        return cast("S", None if state is None else state())

    @classmethod
    def upgrade(cls, raw: dict[str, Any], version: int) -> S:  # noqa: ARG003 - for those who override it
        """Return the state that `raw`, saved under the older `version`, stands for.

        Unless overridden, `raw` is read as the present type, as far as it fits: new fields take their
        defaults, others are dropped; what does not fit is a `MalformedMessageError`.
        """
        return cast("S", codec.decode(codec.encode(raw, limit=None), define(cls).state))


_RESERVED = frozenset({*dir(Entity), "state"})


def make_instance(entity: type[E], activation: Activation) -> E:
    """Return a live instance; its state is loaded, or made by `initial()`, by the caller."""
    instance = entity()
    instance.__activation__ = activation
    return instance


def _activation(instance: Entity[Any], attribute: str) -> Activation:
    if instance.__activation__ is None:
        raise cluster_required(f"{type(instance).__name__}.{attribute}")
    return instance.__activation__


# --- when a class is made ---


def _declare(cls: type[Entity[Any]], name: str | None, given: dict[str, Any]) -> None:
    label = cls.__name__
    base = next((kind for kind in cls.__mro__[1:] if "__declaration__" in vars(kind)), None)
    inherited = _Options() if base is None else cast("_Declaration", vars(base)["__declaration__"]).options
    options = replace(inherited, **given)
    options.check(label)
    stored_name = label if name is None else name
    _check_name(label, "type", stored_name)
    _check_hooks(cls)
    state, module = _state_argument(cls)
    rpcs = MappingProxyType(_collect_rpcs(cls))
    cls.__declaration__ = _Declaration(stored_name, options, state, module, rpcs)


def _check_name(label: str, kind: str, name: object) -> None:
    try:
        check_name(kind, name)
    except ValueError as error:
        raise TypeError(f"{label}: {error}") from error


def _check_kind(label: str, keyword: str, value: object, kind: type[object]) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{label}: {keyword} must be a {kind.__name__}, got {value!r}")


def _check_whole(label: str, keyword: str, value: object, most: int) -> None:
    if type(value) is not int or not 1 <= value <= most:
        raise TypeError(f"{label}: {keyword} must be a whole number from 1 to {most}, got {value!r}")


def _check_hooks(cls: type[Entity[Any]]) -> None:
    for hook in ("on_start", "on_stop"):
        if not inspect.iscoroutinefunction(getattr(cls, hook)):
            raise TypeError(f"{cls.__name__}.{hook} must be async, write `async def`")
    upgrade = vars(cls).get("upgrade")
    if isinstance(upgrade, FunctionType):
        # Like `__init_subclass__`, it can be nothing but a class method: there is no instance yet.
        setattr(cls, "upgrade", classmethod(upgrade))  # noqa: B010 - assigning would be a type error


def _state_argument(cls: type[Any]) -> tuple[Any, str]:
    """Find what stands for S in `Entity[S]`, through generic bases, and the module that wrote it."""
    for written in vars(cls).get("__orig_bases__", cls.__bases__):
        base, arguments = get_origin(written) or written, get_args(written)
        if base is Entity and arguments:
            return arguments[0], cls.__module__
        if base is Entity or not (isinstance(base, type) and issubclass(base, Entity)):
            continue
        inherited = base.__declaration__
        if isinstance(inherited.state, TypeVar) and arguments:
            place = cast("Any", base).__parameters__.index(inherited.state)
            return arguments[place], cls.__module__
        return inherited.state, inherited.module
    raise TypeError(f"{cls.__name__}: say what its state is: Entity[State], or Entity[None] if it has none")


def _collect_rpcs(cls: type[Any]) -> dict[str, RpcDescriptor[Any, Any]]:
    found: dict[str, RpcDescriptor[Any, Any]] = {}
    for kind in reversed(cls.__mro__):
        for attribute, value in vars(kind).items():
            if isinstance(value, RpcDescriptor):
                found[attribute] = value
            elif attribute in found:
                raise TypeError(
                    f"{cls.__name__}.{attribute} overrides an rpc and is none: write @rpc above it"
                )
    stored: dict[str, str] = {}
    for attribute, descriptor in found.items():
        label = f"{cls.__name__}.{attribute}"
        if attribute in _RESERVED:
            raise TypeError(f"{label}: every entity has {attribute!r} already, give the rpc another name")
        _check_name(label, "rpc", descriptor.name)
        if (other := stored.setdefault(descriptor.name, attribute)) != attribute:
            raise TypeError(f"{label}: {other!r} has the stored name {descriptor.name!r} already")
    return found


# --- when a cluster is entered ---


_DEFINED: dict[type[Entity[Any]], EntityDefinition] = {}


def define(entity: type[Entity[Any]]) -> EntityDefinition:
    """Resolve and check all types of `entity`; TypeError names what cannot be resolved or sent."""
    if entity is Entity:
        raise TypeError("Entity itself is no type of entity: derive from it")
    if entity not in _DEFINED:
        _DEFINED[entity] = _defined(entity)
    return _DEFINED[entity]


def _defined(entity: type[Entity[Any]]) -> EntityDefinition:
    declared = entity.__declaration__
    if isinstance(declared.state, TypeVar):
        raise TypeError(f"{entity.__name__} is generic in its state: register a class that names one")
    rpcs = (_define_rpc(entity, attribute, found) for attribute, found in declared.rpcs.items())
    return EntityDefinition(
        name=declared.name,
        entity=entity,
        state=_resolve_state(entity, declared),
        rpcs=MappingProxyType({made.name: made for made in rpcs}),
        **{item.name: getattr(declared.options, item.name) for item in fields(_Options)},
    )


def _resolve_state(entity: type[Entity[Any]], declared: _Declaration) -> Any:
    def holder() -> None: ...

    holder.__annotations__ = {"state": declared.state}
    scope = vars(sys.modules[declared.module]) if declared.module in sys.modules else {}
    label = f"{entity.__name__}: its state"
    state = _hints(label, holder, scope)["state"]
    if state is NoneType:
        return None
    _check_sendable(label, state)
    if entity.initial is Entity.initial:
        try:
            state()
        except TypeError as error:
            raise TypeError(
                f"{label} cannot be made without arguments ({error}): give its fields defaults, or define "
                "`def initial(self)`"
            ) from error
    return state


def _define_rpc(
    entity: type[Entity[Any]], attribute: str, descriptor: RpcDescriptor[Any, Any]
) -> RpcDefinition:
    label = f"{entity.__name__}.{attribute}"
    hints = _hints(label, descriptor.handler)
    parameters = list(inspect.signature(descriptor.handler).parameters.values())[1:]
    for parameter in parameters:
        _check_sendable(f"{label}: parameter {parameter.name!r}", hints[parameter.name])
    result = hints.get("return", Any)
    _check_sendable(f"{label}: its result", result)
    for error in descriptor.raises:
        for field, hint in _hints(f"{label}: {error.__name__}", error).items():
            if field != "code":
                _check_sendable(f"{label}: {error.__name__}.{field}", hint)
    required = frozenset(item.name for item in parameters if item.default is inspect.Parameter.empty)
    types = {parameter.name: hints[parameter.name] for parameter in parameters}
    return RpcDefinition(
        name=descriptor.name,
        attribute=attribute,
        handler=descriptor.handler,
        readonly=descriptor.readonly,
        parameters=MappingProxyType(types),
        required=required,
        result=result,
        raises=MappingProxyType({error.code: error for error in descriptor.raises}),
        arguments=Arguments(label, types, required),
    )


def _hints(label: str, annotated: Callable[..., Any], scope: dict[str, Any] | None = None) -> dict[str, Any]:
    try:
        return get_type_hints(annotated, scope, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{label}: {error.name!r} is not known at run time; import it outside `if TYPE_CHECKING`, and "
            "define it at the top of a module"
        ) from error


def _check_sendable(label: str, annotation: Any) -> None:
    try:
        codec.check_type(annotation)
    except TypeError as error:
        raise TypeError(f"{label}: {error}") from error
