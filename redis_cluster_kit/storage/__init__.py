"""The durable plane, and the only package that speaks SQL: PostgreSQL in production, SQLite on one host.

It keeps the fence register, the cluster's record, machine ids, singleton state, crons and their instants.
What is copied to Redis, or kept there without a database, goes through `redis_access`.
"""

from .database import Database
from .deferreds import DeferredPlace, Deferreds, Resolution, Waiting
from .inspection import DatabaseFacts, inspect_database, is_too_new, pending_steps
from .journal import Entry, ExecutionClosedError, Journal, Place
from .leftovers import Leftovers
from .machine_ids import MachineIdLease, MachineIds
from .migrations import stored_version
from .record import ClusterRecord, Difference, RecordStore
from .redis_state import CachedState, RedisState
from .register import FenceRegister
from .schema import SCHEMA_VERSION
from .singleton_executions import (
    PutBackError,
    RecordedCall,
    Round,
    SetAside,
    SingletonExecutions,
    parse_set_aside,
)
from .sql_cron import DueInstant, Hold, Planned, RegisteredCron, SqlCrons
from .sql_cron_view import SqlCronView, StoredCron
from .sql_metadata import SqlMetadata, StoredMetadata
from .sql_state import SqlState, StoredState, Written
from .sql_ticks import InstantRow, SqlTicks
from .write_through import Holder, SingletonStore, Version

__all__ = [
    "SCHEMA_VERSION",
    "CachedState",
    "ClusterRecord",
    "Database",
    "DatabaseFacts",
    "DeferredPlace",
    "Deferreds",
    "Difference",
    "DueInstant",
    "Entry",
    "ExecutionClosedError",
    "FenceRegister",
    "Hold",
    "Holder",
    "InstantRow",
    "Journal",
    "Leftovers",
    "MachineIdLease",
    "MachineIds",
    "Place",
    "Planned",
    "PutBackError",
    "RecordStore",
    "RecordedCall",
    "RedisState",
    "RegisteredCron",
    "Resolution",
    "Round",
    "SetAside",
    "SingletonExecutions",
    "SingletonStore",
    "SqlCronView",
    "SqlCrons",
    "SqlMetadata",
    "SqlState",
    "SqlTicks",
    "StoredCron",
    "StoredMetadata",
    "StoredState",
    "Version",
    "Waiting",
    "Written",
    "inspect_database",
    "is_too_new",
    "parse_set_aside",
    "pending_steps",
    "stored_version",
]
