"""What can be seen of a cluster: the health of one runner, and a snapshot of all from outside."""

from .health import HealthReport, ShardHealth, StoreHealth, report
from .metrics import Readable, Reading, collector_of, metrics_page
from .snapshot import ShardSight, Snapshot, read_members, read_record, take_snapshot
from .watchdog import Watchdog

__all__ = [
    "HealthReport",
    "Readable",
    "Reading",
    "ShardHealth",
    "ShardSight",
    "Snapshot",
    "StoreHealth",
    "Watchdog",
    "collector_of",
    "metrics_page",
    "read_members",
    "read_record",
    "report",
    "take_snapshot",
]
