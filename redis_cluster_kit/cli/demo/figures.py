"""How much the pods do and how quickly, made of the counters that they tell of.

The counters are those of the metrics; delivery is from the mailbox to the handler, known to a bucket's width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from redis_cluster_kit.runtime import LATENCY_BUCKETS
from redis_cluster_kit.testing import ChildEvent

from .pods import Pod

_WINDOW = 2.0


@dataclass(frozen=True, slots=True)
class Pace:
    """What pods did during some seconds. Quantiles are in seconds, None if nothing was delivered."""

    rate: float = 0.0
    """Messages a second."""
    latency: tuple[int, ...] = (0,) * (len(LATENCY_BUCKETS) + 1)
    entities: int = 0
    fenced: int = 0

    @property
    def p50(self) -> float | None:
        """The median time of a delivery."""
        return quantile(self.latency, 0.5)

    @property
    def p99(self) -> float | None:
        """The time that one of a hundred deliveries takes longer than."""
        return quantile(self.latency, 0.99)


def pace_now(pod: Pod) -> Pace:
    """Return what a pod did during the last two seconds."""
    told = (event for event in reversed(pod.child.events) if event.name == "figures")
    last = next(told, None)
    if last is None:
        return Pace()
    first = last
    for event in told:
        first = event
        if last.t_boot - event.t_boot >= _WINDOW:
            break
    return _between(first, last)


def _between(first: ChildEvent, last: ChildEvent) -> Pace:
    seconds = last.t_boot - first.t_boot
    return Pace(
        rate=(last["commits"] - first["commits"]) / seconds if seconds else 0.0,
        latency=tuple(now - before for now, before in zip(last["latency"], first["latency"], strict=True)),
        entities=last["entities"],
        fenced=last["fenced"],
    )


def together(paces: Iterable[Pace]) -> Pace:
    """Return what several pods did at once."""
    total = Pace()
    for one in paces:
        latency = tuple(mine + more for mine, more in zip(total.latency, one.latency, strict=True))
        total = Pace(total.rate + one.rate, latency, total.entities + one.entities, total.fenced + one.fenced)
    return total


def whole_run(pods: Iterable[Pod]) -> tuple[int, Pace]:
    """Return how many messages all pods handled since the beginning, and how quickly they were delivered."""
    last = [next((one for one in reversed(pod.child.events) if one.name == "figures"), None) for pod in pods]
    told = [event for event in last if event is not None]
    pace = together(Pace(latency=tuple(event["latency"]), fenced=event["fenced"]) for event in told)
    return sum(event["commits"] for event in told), pace


def quantile(buckets: Sequence[int], share: float) -> float | None:
    """Return the time below which a share of the deliveries stayed, evenly spread within its bucket."""
    wanted, below = share * sum(buckets), 0.0
    for place, number in enumerate(buckets):
        if number and below + number >= wanted:
            low = LATENCY_BUCKETS[place - 1] if place else 0.0
            high = LATENCY_BUCKETS[min(place, len(LATENCY_BUCKETS) - 1)]
            return low + (high - low) * (wanted - below) / number
        below += number
    return None
