"""The durable plane, and the only package that speaks SQL: PostgreSQL in production, SQLite on one host.

It keeps the fence register, the cluster's record, machine ids and singleton state. What is copied to Redis,
or kept there without a database, goes through `redis_access`.
"""

from .database import Database
from .inspection import DatabaseFacts, inspect_database, is_too_new, pending_steps
from .leftovers import Leftovers
from .machine_ids import MachineIdLease, MachineIds
from .migrations import stored_version
from .record import ClusterRecord, Difference, RecordStore
from .redis_state import CachedState, RedisState
from .register import FenceRegister
from .schema import SCHEMA_VERSION
from .sql_metadata import SqlMetadata, StoredMetadata
from .sql_state import SqlState, StoredState, Written
from .write_through import Holder, SingletonStore, Version

__all__ = [
    "SCHEMA_VERSION",
    "CachedState",
    "ClusterRecord",
    "Database",
    "DatabaseFacts",
    "Difference",
    "FenceRegister",
    "Holder",
    "Leftovers",
    "MachineIdLease",
    "MachineIds",
    "RecordStore",
    "RedisState",
    "SingletonStore",
    "SqlMetadata",
    "SqlState",
    "StoredMetadata",
    "StoredState",
    "Version",
    "Written",
    "inspect_database",
    "is_too_new",
    "pending_steps",
    "stored_version",
]
