"""The only package that speaks Redis: URLs, lanes, scripts and the names of keys."""

from .keyspace import CLASSES, KINDS, KeyKind, Keyspace, ShardKeys, kind_of, reference_page
from .lanes import Lanes
from .scripts import Outcome, Script, script_names
from .urls import RedisUrl

__all__ = [
    "CLASSES",
    "KINDS",
    "KeyKind",
    "Keyspace",
    "Lanes",
    "Outcome",
    "RedisUrl",
    "Script",
    "ShardKeys",
    "kind_of",
    "reference_page",
    "script_names",
]
