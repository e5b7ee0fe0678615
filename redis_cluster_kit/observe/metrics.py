"""Prometheus metrics of the runners in this process: read when somebody scrapes, so counting costs nothing.

One collector a registry, however many clusters a process has joined; no labels but the namespace.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from redis_cluster_kit.runtime import LATENCY_BUCKETS, RuntimeCounters

_COUNTERS = {
    "commits": "turns that were committed",
    "failures": "turns that raised and were tried again or buried",
    "buried": "messages that became dead letters",
    "declared_errors": "turns answered with a declared error",
    "fenced": "writes refused because another runner owns the shard",
    "lost": "turns whose message was gone or whose state had changed",
    "rescued": "messages that the poll found although a nudge should have told of them",
    "quick": "turns begun with a nudge's own message",
    "marked": "nudges that could not be used at once",
    "promoted": "scheduled messages delivered",
    "activated": "entities brought into memory",
    "passivated": "entities that left memory because they were idle",
    "unknown": "types and rpcs met that this runner does not know",
}


@dataclass(slots=True)
class Reading:
    """What one runner shows at one moment."""

    namespace: str
    entities: int = 0
    shards: int = 0
    runners: int = 0
    runners_healthy: int = 0
    mailbox_messages: int = 0
    dead_letters: int = 0
    counters: RuntimeCounters = field(default_factory=RuntimeCounters)
    calls: dict[str, int] = field(default_factory=dict[str, int])


class Readable:
    """A runner as the collector sees it."""

    def read(self) -> Reading:
        """Return what it shows now; called from whichever thread scrapes."""
        raise NotImplementedError


class ClusterCollector(Collector):
    """Shows every runner of this process that uses its registry."""

    def __init__(self) -> None:
        self._sources: list[Readable] = []
        self._lock = threading.Lock()

    def add(self, source: Readable) -> None:
        """Show one more."""
        with self._lock:
            self._sources = [*self._sources, source]

    def remove(self, source: Readable) -> None:
        """Show one less."""
        with self._lock:
            self._sources = [one for one in self._sources if one is not source]

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are known only to those who collect."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read everything now."""
        readings = [source.read() for source in self._sources]
        if not readings:
            return
        yield from _gauges(readings)
        yield from _counters(readings)
        yield _latency(readings)


_COLLECTORS: weakref.WeakKeyDictionary[CollectorRegistry, ClusterCollector] = weakref.WeakKeyDictionary()


def collector_of(registry: CollectorRegistry) -> ClusterCollector:
    """Return the collector of a registry, registering one if there is none yet."""
    collector = _COLLECTORS.get(registry)
    if collector is None:
        collector = _COLLECTORS[registry] = ClusterCollector()
        registry.register(collector)
    return collector


def _gauges(readings: list[Reading]) -> Iterator[Metric]:
    texts = {
        "entities": "entities in this runner's memory",
        "shards": "shards this runner owns",
        "runners": "live runners, as this one sees them",
        "runners_healthy": "live runners that are not leaving",
        "mailbox_messages": "messages that wait or are handled, in this runner's shards",
        "dead_letters": "dead letters in this runner's shards",
    }
    for name, text in texts.items():
        family = GaugeMetricFamily(f"rck_{name}", text, labels=["namespace"])
        for reading in readings:
            family.add_metric([reading.namespace], getattr(reading, name))
        yield family


def _counters(readings: list[Reading]) -> Iterator[Metric]:
    for name, text in _COUNTERS.items():
        family = CounterMetricFamily(f"rck_{name}", text, labels=["namespace"])
        for reading in readings:
            family.add_metric([reading.namespace], getattr(reading.counters, name))
        yield family
    family = CounterMetricFamily("rck_calls", "calls made by this runner", labels=["namespace", "kind"])
    for reading in readings:
        for kind, number in reading.calls.items():
            family.add_metric([reading.namespace, kind], number)
    yield family


def _latency(readings: list[Reading]) -> Metric:
    family = HistogramMetricFamily(
        "rck_delivery_seconds", "from the mailbox to the handler", labels=["namespace"]
    )
    for reading in readings:
        total, buckets = 0, list[tuple[str, float]]()
        for limit, number in zip((*LATENCY_BUCKETS, float("inf")), reading.counters.latency, strict=True):
            total += number
            buckets.append(("+Inf" if limit == float("inf") else str(limit), float(total)))
        family.add_metric([reading.namespace], buckets, reading.counters.latency_sum)
    return family
