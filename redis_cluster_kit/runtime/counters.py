"""What the runtime counts; plain numbers, so that counting costs nothing. Metrics read them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

LATENCY_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)


@dataclass(slots=True)
class RuntimeCounters:
    """Since this runner joined."""

    commits: int = 0
    fenced: int = 0
    lost: int = 0
    failures: int = 0
    buried: int = 0
    declared_errors: int = 0
    rescued: int = 0
    """Messages that the poll found and no nudge had told of."""
    quick: int = 0
    """Turns that began with a nudge's own message, without a claim."""
    marked: int = 0
    """Nudges that could not be used at once."""
    promoted: int = 0
    activated: int = 0
    passivated: int = 0
    unknown: int = 0
    """Messages that wait because nobody here knows their type, rpc or envelope."""
    latency: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BUCKETS) + 1))
    """Messages by how long they waited before their handler began, one number for each bucket."""
    latency_sum: float = 0.0

    @property
    def ended(self) -> int:
        """Turns that came to an end, one way or another."""
        return self.commits + self.failures + self.buried + self.lost

    def waited(self, seconds: float) -> None:
        """Count one message's wait."""
        self.latency_sum += seconds
        self.latency[bisect_left(LATENCY_BUCKETS, seconds)] += 1
