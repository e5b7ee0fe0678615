"""Running entities, singletons and crons: hosts of shards, activations, turns, leaders, planners."""

from .broadcast import Broadcasts
from .collecting import rarer_collections
from .counters import LATENCY_BUCKETS, RuntimeCounters
from .cron_counters import CronCounters
from .cron_view import CronInfo, Crons
from .crons import CronHost
from .execution_stores import Stores
from .executions import Executions
from .host import EntityHost
from .leader import SingletonHealth
from .leader_notes import STALE_AFTER, metadata_of
from .set_aside import SetAsideExecutions
from .singleton_counters import DURATION_BUCKETS, SingletonCounters
from .singleton_view import SingletonView
from .singletons import SingletonHost, singleton_shard
from .tick_messages import TickMessages, cron_shard

__all__ = [
    "DURATION_BUCKETS",
    "LATENCY_BUCKETS",
    "STALE_AFTER",
    "Broadcasts",
    "CronCounters",
    "CronHost",
    "CronInfo",
    "Crons",
    "EntityHost",
    "Executions",
    "RuntimeCounters",
    "SetAsideExecutions",
    "SingletonCounters",
    "SingletonHealth",
    "SingletonHost",
    "SingletonView",
    "Stores",
    "TickMessages",
    "cron_shard",
    "metadata_of",
    "rarer_collections",
    "singleton_shard",
]
