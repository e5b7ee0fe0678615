"""What is counted of one cron in this process: its ticks that ran here, its instants planned here."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from .counters import LATENCY_BUCKETS
from .singleton_counters import DURATION_BUCKETS


@dataclass(slots=True)
class CronCounters:
    """Since this runner joined."""

    executions: int = 0
    """Ticks that ended without an error."""
    failures: int = 0
    """Attempts that raised."""
    skipped: Counter[str] = field(default_factory=Counter[str])
    """Instants that nothing ran for, by reason: breaker, overlap, late."""
    last_execution: float = 0.0
    """Unix seconds; 0: none here yet."""
    durations: list[int] = field(default_factory=lambda: [0] * (len(DURATION_BUCKETS) + 1))
    duration_sum: float = 0.0
    lateness: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BUCKETS) + 1))
    """First attempts by how long after their instant they began."""
    lateness_sum: float = 0.0
    failing: str = ""
    """What it raised last here, until a tick ends well anywhere: the sweep finds that out."""
    open_until: int = 0
    """Until when its breaker is open, in milliseconds, as far as it is known here."""

    def began(self, seconds: float) -> None:
        """Count a first attempt that began so long after its instant."""
        self.lateness_sum += seconds
        self.lateness[bisect_left(LATENCY_BUCKETS, seconds)] += 1

    def ran(self, seconds: float, now: float) -> None:
        """Count a tick that ended without an error."""
        self.executions += 1
        self.last_execution = now
        self.duration_sum += seconds
        self.durations[bisect_left(DURATION_BUCKETS, seconds)] += 1
        self.is_well()

    def is_well(self) -> None:
        """Its last tick ended without an error, here or on another runner."""
        self.failing, self.open_until = "", 0

    def failed(self, text: str) -> None:
        """Count an attempt that raised."""
        self.failures += 1
        self.failing = text

    def add(self, other: CronCounters) -> None:
        """Add what was counted elsewhere in this process."""
        self.executions += other.executions
        self.failures += other.failures
        self.skipped += other.skipped
        self.last_execution = max(self.last_execution, other.last_execution)
        self.durations = [mine + more for mine, more in zip(self.durations, other.durations, strict=True)]
        self.duration_sum += other.duration_sum
        self.lateness = [mine + more for mine, more in zip(self.lateness, other.lateness, strict=True)]
        self.lateness_sum += other.lateness_sum
        self.open_until = max(self.open_until, other.open_until)
