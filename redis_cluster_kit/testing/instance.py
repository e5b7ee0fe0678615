"""One entity without a cluster: `instance(Account, "alice", state=Ledger(5))` runs its handlers here and now.

A handler that raises changes nothing, as in a cluster; what it sends is kept in `.sent` instead of sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Generic, TypeVar, cast

from redis_cluster_kit.codec import decode, encode
from redis_cluster_kit.entity import (
    NO_OPTIONS,
    BoundRpc,
    CallOptions,
    Entity,
    EntityDefinition,
    RpcCall,
    RpcDefinition,
    RpcMethod,
    Turn,
    define,
    enter_context,
    enter_turn,
    leave_context,
    leave_turn,
    make_instance,
)
from redis_cluster_kit.identity import EntityAddress, ShardId, shard_number

E = TypeVar("E", bound=Entity[Any])

_SHARDS = 100


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that a handler sent."""

    type: str
    id: str
    rpc: str
    arguments: dict[str, Any]
    options: CallOptions = NO_OPTIONS

    def __str__(self) -> str:
        named = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.type}/{self.id}.{self.rpc}({named})"


@dataclass(slots=True)
class EntityUnderTest(Generic[E]):
    """Stands where a proxy would: its rpcs run at once, in this task."""

    definition: EntityDefinition
    address: EntityAddress
    resources: Mapping[type[Any], Any]
    answers: Mapping[Any, Any]
    sent: list[Sent] = field(default_factory=list[Sent])
    """What its turns sent, in order; of a turn that raised, nothing."""
    content: bytes | None = None
    """The committed state, as it is stored."""
    _live: Entity[Any] | None = None
    staged: list[Sent] = field(default_factory=list[Sent])
    """What the turn that runs has sent so far."""

    def __getattr__(self, name: str) -> Any:
        for rpc in self.definition.rpcs.values():
            if rpc.attribute == name:
                return _Run(self, rpc)
        raise AttributeError(f"{self.definition.name!r} has no rpc {name!r}")

    @property
    def state(self) -> Any:
        """The committed state."""
        self._instance()
        return self._decoded()

    # What its instance sees

    @property
    def id(self) -> str:
        """The entity's id."""
        return self.address.id

    @property
    def cluster(self) -> Any:
        """A stand-in: `.entity(type, id)` keeps what is sent and answers asks from `answers`."""
        return SimpleNamespace(entity=self._other, resource=self.resource)

    def resource(self, type: type[Any], /) -> Any:
        """Return what the test gave for `type`."""
        try:
            return self.resources[type]
        except KeyError:
            raise LookupError(f"no resource {type.__qualname__}: give it in resources={{…}}") from None

    def keep_alive(self) -> None:
        """Nothing to keep."""

    def call(self, rpc: str, options: CallOptions, /) -> RpcCall[Any, Any]:
        """Return a call of its own rpc through its mailbox."""
        return _Kept(self, self.address, self.definition.rpcs[rpc], options)

    # Inside

    def _other(self, type: type[Entity[Any]], id: str, /) -> Any:
        definition = define(type)
        address = _address(definition, id)
        calls = {rpc.attribute: _Kept(self, address, rpc, NO_OPTIONS) for rpc in definition.rpcs.values()}
        return SimpleNamespace(**calls, id=id, address=address)

    def _instance(self) -> Entity[Any]:
        if self._live is None:
            self._live = make_instance(self.definition.entity, self)
            if self.content is None and self.definition.state is not None:
                self.content = encode(self._live.initial(), limit=None)
        return self._live

    def _decoded(self) -> Any:
        return None if self.content is None else decode(self.content, self.definition.state)

    async def run(self, rpc: RpcDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run one turn; what raises changes nothing."""
        encoded = rpc.arguments.encode(args, kwargs, limit=2**30, max_depth=64)
        is_first = self._live is None
        instance = self._instance()
        instance.state = self._decoded()
        turn = Turn(self.address, "test", 1, message_id="000000000000-1", chain=(str(self.address),))
        self.staged = []
        context, entered = enter_context(turn), enter_turn(turn)
        try:
            if is_first:
                await instance.on_start()
            result = await rpc.handler(instance, **rpc.arguments.decode(encoded, max_depth=64))
        finally:
            leave_turn(turn, entered)
            leave_context(context)
        if self.content is not None and not rpc.readonly:
            self.content = encode(instance.state, limit=None)
        self.sent += self.staged
        return decode(encode(result, limit=None), rpc.result)


class _Run(BoundRpc[Any, Any]):
    """An rpc of the entity under test."""

    __slots__ = ("_entity", "_rpc")

    def __init__(self, entity: EntityUnderTest[Any], rpc: RpcDefinition) -> None:
        super().__init__(f"{entity.address}.{rpc.name}", NO_OPTIONS)
        self._entity = entity
        self._rpc = rpc

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return await self._entity.run(self._rpc, args, kwargs)


class _Kept(BoundRpc[Any, Any]):
    """A call that a handler makes: a send is kept, an ask is answered by the test."""

    __slots__ = ("_address", "_entity", "_rpc")

    def __init__(
        self, entity: EntityUnderTest[Any], address: EntityAddress, rpc: RpcDefinition, options: CallOptions
    ) -> None:
        super().__init__(f"{address}.{rpc.name}", options)
        self._entity = entity
        self._address = address
        self._rpc = rpc

    def with_options(self, options: CallOptions) -> RpcCall[Any, Any]:
        return _Kept(self._entity, self._address, self._rpc, options)

    async def send(self, *args: Any, **kwargs: Any) -> Any:
        sent = Sent(
            self._address.type, self._address.id, self._rpc.name, self._named(args, kwargs), self.call_options
        )
        self._entity.staged.append(sent)
        return SimpleNamespace(message_id=f"000000000000-{len(self._entity.sent) + 1}")

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for method, answer in self._entity.answers.items():
            if (method.name, method.entity.__declaration__.name) == (self._rpc.name, self._address.type):
                found = answer(**self._named(args, kwargs)) if callable(answer) else answer
                if isinstance(found, Exception):
                    raise found
                return found
        raise LookupError(f"{self.label} was asked: give its answer in answers={{{self.label}: …}}")

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        encoded = self._rpc.arguments.encode(args, kwargs, limit=2**30, max_depth=64)
        return self._rpc.arguments.decode(encoded, max_depth=64)


def instance(
    entity: type[E],
    id: str,
    *,
    state: Any = None,
    resources: Mapping[type[Any], Any] | None = None,
    answers: Mapping[Any, Any] | None = None,
) -> E:
    """Return an entity to test, typed as `entity`, with `.sent` beside its rpcs.

    `state` is what it starts from, `resources` what `self.resource(type)` returns, `answers` what asks get:
    `{Other.rpc: value}`, a function of the arguments, or an exception to raise.
    """
    definition = define(entity)
    tested = EntityUnderTest[E](definition, _address(definition, id), resources or {}, answers or {})
    if state is not None:
        tested.content = encode(state, limit=None)
    return cast("E", tested)


def messages_sent(entity: Entity[Any]) -> list[Sent]:
    """Return what an entity under test has sent, in order: its `.sent`, for type checkers."""
    if not isinstance(cast("object", entity), EntityUnderTest):
        raise TypeError(f"expected what `instance(…)` returned, got {entity!r}")
    return cast("EntityUnderTest[Any]", entity).sent


def assert_sent(entity: Entity[Any], method: RpcMethod[Any, Any], to: str, /, **arguments: Any) -> Sent:
    """Raise unless exactly one such message was sent: `assert_sent(alice, Account.deposit, "bob", amount=2)`.

    Arguments that are not named may be anything. Returns the message, to look at its `options`.
    """
    kind, rpc = method.entity.__declaration__.name, method.name
    found = [
        message
        for message in messages_sent(entity)
        if (message.type, message.id, message.rpc) == (kind, to, rpc)
        and all(
            name in message.arguments and message.arguments[name] == arguments[name] for name in arguments
        )
    ]
    if len(found) != 1:
        expected = Sent(kind, to, rpc, arguments)
        raise AssertionError(
            f"expected {expected} to be sent once, it was sent {len(found)} times; all: {_listed(entity)}"
        )
    return found[0]


def assert_nothing_sent(entity: Entity[Any], /) -> None:
    """Raise if the entity under test has sent anything."""
    if messages_sent(entity):
        raise AssertionError(f"expected no message to be sent, got {_listed(entity)}")


def _listed(entity: Entity[Any]) -> str:
    return "; ".join(map(str, messages_sent(entity))) or "none"


def _address(definition: EntityDefinition, id: str) -> EntityAddress:
    return EntityAddress(
        definition.name, id, ShardId(definition.shard_group, shard_number(definition.name, id, _SHARDS))
    )
