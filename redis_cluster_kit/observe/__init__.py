"""What can be seen of a cluster: the health of one runner, and a snapshot of all from outside."""

from .health import HealthReport, ShardHealth, StoreHealth, report
from .snapshot import ShardSight, Snapshot, read_record, take_snapshot

__all__ = [
    "HealthReport",
    "ShardHealth",
    "ShardSight",
    "Snapshot",
    "StoreHealth",
    "read_record",
    "report",
    "take_snapshot",
]
