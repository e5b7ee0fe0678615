"""The durable plane, and the only package that speaks SQL: PostgreSQL in production, SQLite on one host.

It keeps the fence register, the cluster's record, machine ids and singleton state. It never speaks Redis.
"""

from .database import Database
from .machine_ids import MachineIdLease, MachineIds
from .record import ClusterRecord, Difference, RecordStore
from .register import FenceRegister
from .sql_state import SqlState, StoredState, Written

__all__ = [
    "ClusterRecord",
    "Database",
    "Difference",
    "FenceRegister",
    "MachineIdLease",
    "MachineIds",
    "RecordStore",
    "SqlState",
    "StoredState",
    "Written",
]
