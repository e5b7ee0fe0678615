"""Running entities and singletons: hosts of shards, activations, turns and their commits, leaders."""

from .broadcast import Broadcasts
from .counters import LATENCY_BUCKETS, RuntimeCounters
from .executions import Executions, SetAsideExecutions, Stores
from .host import EntityHost
from .leader import SingletonHealth
from .leader_notes import STALE_AFTER, metadata_of
from .singleton_counters import DURATION_BUCKETS, SingletonCounters
from .singleton_view import SingletonView
from .singletons import SingletonHost, singleton_shard

__all__ = [
    "DURATION_BUCKETS",
    "LATENCY_BUCKETS",
    "STALE_AFTER",
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
    "metadata_of",
    "singleton_shard",
]
