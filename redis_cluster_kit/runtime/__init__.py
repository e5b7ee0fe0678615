"""Running entities: hosts of shards, activations, turns and their commits."""

from .broadcast import Broadcasts
from .counters import RuntimeCounters
from .host import EntityHost

__all__ = ["Broadcasts", "EntityHost", "RuntimeCounters"]
