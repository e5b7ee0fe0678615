"""What `cluster.entity(Account, "alice")` returns: typed as the entity, holding its rpcs and nothing else.

Making one does no I/O; each rpc is bound when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis_cluster_kit.entity import NO_OPTIONS, BoundRpc, CallOptions, RpcCall, RpcDefinition
from redis_cluster_kit.identity import EntityAddress

from .client import Call, Caller, Target
from .receipt import MessageReceipt


class ProxyCall(RpcCall[Any, Any]):
    """An rpc of one entity with its options, ready to be made."""

    __slots__ = ("_caller", "_rpc", "_target")

    def __init__(self, caller: Caller, target: Target, rpc: RpcDefinition, options: CallOptions) -> None:
        super().__init__("", options)
        self._caller = caller
        self._target = target
        self._rpc = rpc

    def __repr__(self) -> str:
        return f"<rpc {self._target.address}.{self._rpc.name}>"

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return await self._caller.ask(self._made(args, kwargs))

    async def send(self, *args: Any, **kwargs: Any) -> MessageReceipt:
        return await self._caller.tell(self._made(args, kwargs))

    def _made(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        return self._caller.call(self._target, self._rpc, self.call_options, args, kwargs)


class ProxyRpc(ProxyCall, BoundRpc[Any, Any]):
    """The same without options yet."""

    __slots__ = ()

    def with_options(self, options: CallOptions) -> RpcCall[Any, Any]:
        return ProxyCall(self._caller, self._target, self._rpc, options)


class EntityProxy:
    """Stands for one entity, wherever it lives: its rpcs, `.id`, `.address` and `.cluster`."""

    __slots__ = ("_caller", "_cluster", "_rpcs", "_target")

    def __init__(
        self, caller: Callable[[], Caller], cluster: object, target: Target, rpcs: dict[str, RpcDefinition]
    ) -> None:
        self._caller = caller
        self._cluster = cluster
        self._target = target
        self._rpcs = rpcs

    def __getattr__(self, name: str) -> ProxyRpc:
        rpc = self._rpcs.get(name)
        if rpc is None:
            known = ", ".join(self._rpcs)
            raise AttributeError(
                f"a proxy of {self._target.definition.name!r} has no {name!r}: it offers its rpcs ({known}), "
                "id, address and cluster"
            )
        return ProxyRpc(self._caller(), self._target, rpc, NO_OPTIONS)

    def __repr__(self) -> str:
        return f"<entity {self._target.address}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EntityProxy) and other._target == self._target

    def __hash__(self) -> int:
        return hash(self._target.address)

    @property
    def id(self) -> str:
        """The entity's id."""
        return self._target.address.id

    @property
    def address(self) -> EntityAddress:
        """Type, id and shard."""
        return self._target.address

    @property
    def cluster(self) -> Any:
        """The cluster it was got from."""
        return self._cluster


def make_proxy(caller: Callable[[], Caller], cluster: object, target: Target) -> EntityProxy:
    """Return the proxy of an entity; `caller` is asked when a call is made."""
    return EntityProxy(caller, cluster, target, _by_attribute(target))


def rpc_call(caller: Caller, target: Target, rpc: str, options: CallOptions) -> RpcCall[Any, Any]:
    """Return the call of the rpc with this stored name."""
    return ProxyCall(caller, target, target.definition.rpcs[rpc], options)


_BY_ATTRIBUTE: dict[int, dict[str, RpcDefinition]] = {}


def _by_attribute(target: Target) -> dict[str, RpcDefinition]:
    definition = target.definition
    found = _BY_ATTRIBUTE.get(id(definition))
    if found is None:
        found = {rpc.attribute: rpc for rpc in definition.rpcs.values()}
        _BY_ATTRIBUTE[id(definition)] = found  # definitions are made once a class and kept
    return found
