"""What users define: entities, their rpcs, where they are registered, and the context they run in."""

from .context import ClusterContext, ContextFields, cluster_required, current, within_cluster
from .definition import Activation, Entity, EntityDefinition, Retry, RpcDefinition, define, make_instance
from .registry import Registry
from .rpcs import DEFAULT, BoundRpc, CallOptions, Default, Receipt, RpcCall, RpcDescriptor, RpcMethod, rpc

__all__ = [
    "DEFAULT",
    "Activation",
    "BoundRpc",
    "CallOptions",
    "ClusterContext",
    "ContextFields",
    "Default",
    "Entity",
    "EntityDefinition",
    "Receipt",
    "Registry",
    "Retry",
    "RpcCall",
    "RpcDefinition",
    "RpcDescriptor",
    "RpcMethod",
    "cluster_required",
    "current",
    "define",
    "make_instance",
    "rpc",
    "within_cluster",
]
