"""The durable plane, and the only package that speaks SQL: PostgreSQL in production, SQLite on one host.

It keeps the fence register, the cluster's record, machine ids and singleton state. It never speaks Redis.
"""

from .database import Database
from .inspection import DatabaseFacts, inspect_database, is_too_new, pending_steps
from .machine_ids import MachineIdLease, MachineIds
from .migrations import stored_version
from .record import ClusterRecord, Difference, RecordStore
from .register import FenceRegister
from .schema import SCHEMA_VERSION
from .sql_state import SqlState, StoredState, Written

__all__ = [
    "SCHEMA_VERSION",
    "ClusterRecord",
    "Database",
    "DatabaseFacts",
    "Difference",
    "FenceRegister",
    "MachineIdLease",
    "MachineIds",
    "RecordStore",
    "SqlState",
    "StoredState",
    "Written",
    "inspect_database",
    "is_too_new",
    "pending_steps",
    "stored_version",
]
