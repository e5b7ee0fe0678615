"""The only package that speaks Redis: URLs, lanes, scripts and the names of keys."""

from .batches import Batches
from .keyspace import CLASSES, KINDS, KeyKind, Keyspace, ShardKeys, kind_of, reference_page
from .lanes import Lanes, Word
from .scripts import Outcome, Script, script_names
from .urls import RedisUrl

__all__ = [
    "CLASSES",
    "KINDS",
    "Batches",
    "KeyKind",
    "Keyspace",
    "Lanes",
    "Outcome",
    "RedisUrl",
    "Script",
    "ShardKeys",
    "Word",
    "kind_of",
    "reference_page",
    "script_names",
]
