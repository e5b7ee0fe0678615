"""Running entities: hosts of shards, activations, turns and their commits."""

from .broadcast import Broadcasts
from .counters import LATENCY_BUCKETS, RuntimeCounters
from .host import EntityHost

__all__ = ["LATENCY_BUCKETS", "Broadcasts", "EntityHost", "RuntimeCounters"]
