"""What users define: entities, their rpcs, where they are registered, and the context they run in."""

from .context import (
    ClusterContext,
    ContextFields,
    cluster_required,
    current,
    enter_context,
    leave_context,
    within_cluster,
)
from .definition import Activation, Entity, EntityDefinition, Retry, RpcDefinition, define, make_instance
from .registry import Registry
from .rpcs import (
    DEFAULT,
    NO_OPTIONS,
    BoundRpc,
    CallOptions,
    Default,
    Durability,
    Receipt,
    RpcCall,
    RpcDescriptor,
    RpcMethod,
    replicated,
    rpc,
)
from .turn import Turn, current_turn, enter_turn, leave_turn

__all__ = [
    "DEFAULT",
    "NO_OPTIONS",
    "Activation",
    "BoundRpc",
    "CallOptions",
    "ClusterContext",
    "ContextFields",
    "Default",
    "Durability",
    "Entity",
    "EntityDefinition",
    "Receipt",
    "Registry",
    "Retry",
    "RpcCall",
    "RpcDefinition",
    "RpcDescriptor",
    "RpcMethod",
    "Turn",
    "cluster_required",
    "current",
    "current_turn",
    "define",
    "enter_context",
    "enter_turn",
    "leave_context",
    "leave_turn",
    "make_instance",
    "replicated",
    "rpc",
    "within_cluster",
]
