"""Running entities and singletons: hosts of shards, activations, turns and their commits, leaders."""

from .broadcast import Broadcasts
from .counters import LATENCY_BUCKETS, RuntimeCounters
from .executions import Executions, SetAsideExecutions, Stores
from .host import EntityHost
from .leader import SingletonHealth
from .singleton_counters import DURATION_BUCKETS, SingletonCounters
from .singleton_view import SingletonView
from .singletons import SingletonHost, singleton_shard

__all__ = [
    "DURATION_BUCKETS",
    "LATENCY_BUCKETS",
    "Broadcasts",
    "EntityHost",
    "Executions",
    "RuntimeCounters",
    "SetAsideExecutions",
    "SingletonCounters",
    "SingletonHealth",
    "SingletonHost",
    "SingletonView",
    "Stores",
    "singleton_shard",
]
