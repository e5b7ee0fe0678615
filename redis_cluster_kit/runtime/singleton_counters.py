"""What is counted of one singleton in this process, over all its leaderships here. Metrics read it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

DURATION_BUCKETS = (0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 3600.0)


@dataclass(slots=True)
class SingletonCounters:
    """Since this runner joined."""

    executions: int = 0
    failures: int = 0
    """Runs of its function that raised."""
    last_execution: float = 0.0
    """Unix seconds; 0: none here yet."""
    durations: list[int] = field(default_factory=lambda: [0] * (len(DURATION_BUCKETS) + 1))
    duration_sum: float = 0.0
    errors: Counter[str] = field(default_factory=Counter[str])
    """Errors of its state, heartbeat and hand-off, by `SingletonReason`."""

    def ran(self, seconds: float, now: float) -> None:
        """Count an execution that ended without an error."""
        self.executions += 1
        self.last_execution = now
        self.duration_sum += seconds
        self.durations[bisect_left(DURATION_BUCKETS, seconds)] += 1

    def add(self, other: SingletonCounters) -> None:
        """Add what was counted elsewhere in this process."""
        self.executions += other.executions
        self.failures += other.failures
        self.last_execution = max(self.last_execution, other.last_execution)
        self.durations = [mine + more for mine, more in zip(self.durations, other.durations, strict=True)]
        self.duration_sum += other.duration_sum
        self.errors += other.errors
