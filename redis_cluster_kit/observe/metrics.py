"""Prometheus metrics of the runners in this process: read when somebody scrapes, so counting costs nothing.

One collector a registry, however many clusters a process has joined. The namespace is the only label that
tells series apart: runners of one namespace in one process are shown as one, and nothing is shown per entity.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from redis_cluster_kit.durable import DurableCounters
from redis_cluster_kit.runtime import LATENCY_BUCKETS, CronCounters, RuntimeCounters, SingletonCounters

from .cron_metrics import CRON_METRICS, cron_metrics
from .histograms import buckets
from .singleton_metrics import SINGLETON_METRICS, singleton_metrics


class _Gauge(NamedTuple):
    text: str
    is_shared: bool = False
    """Whether runners see the same thing, and do not add up."""


_GAUGES = {
    "entities": _Gauge("entities in this process' memory"),
    "singletons": _Gauge("singletons this process leads"),
    "singletons_unhealthy": _Gauge("those of them that are stale, overdue or cannot be loaded or saved"),
    "shards": _Gauge("shards this process owns"),
    "shards_missing": _Gauge("shards this process should own and does not"),
    "runners": _Gauge("live runners, as this one sees them", is_shared=True),
    "runners_healthy": _Gauge("live runners that are not leaving", is_shared=True),
    "mailbox_messages": _Gauge("messages that wait or are handled, in the shards of this process"),
    "dead_letters": _Gauge("dead letters in the shards of this process"),
    "parked": _Gauge("messages that wait durably, in the shards of this process"),
    "executions_set_aside": _Gauge("executions of singletons that wait for a decision", is_shared=True),
    "loop_lag_seconds": _Gauge("how long the event loop took for its last answer", is_shared=True),
}
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
_DURABLE = {
    "steps_run": "durable steps whose function was run and whose result was recorded",
    "steps_replayed": "durable steps whose result was there already",
    "steps_failed": "durable steps whose function raised",
    "step_conflicts": "durable calls that came with another input than the one recorded",
    "parks": "turns that left memory to wait durably",
    "wakes": "turns woken because their sleep was over",
    "deferreds_resolved": "deferreds resolved through this process",
    "deferreds_rescued": "executions woken late, for whoever resolved their deferred did not come to it",
    "executions_aside": "executions of singletons set aside",
    "executions_forgotten": "executions whose journal was deleted",
}
_ALL_COUNTERS = _COUNTERS | _DURABLE
_CALLS = "calls made: ask, send, refused_full, timed_out, looked_up"
_LATENCY = "from the mailbox to the handler"


@dataclass(slots=True)
class Reading:
    """What one runner shows at one moment."""

    namespace: str
    entities: int = 0
    shards: int = 0
    shards_missing: int = 0
    runners: int = 0
    runners_healthy: int = 0
    mailbox_messages: int = 0
    dead_letters: int = 0
    parked: int = 0
    executions_set_aside: int = 0
    loop_lag_seconds: float = 0.0
    durable: DurableCounters = field(default_factory=DurableCounters)
    counters: RuntimeCounters = field(default_factory=RuntimeCounters)
    calls: dict[str, int] = field(default_factory=dict[str, int])
    singletons: int = 0
    singletons_unhealthy: int = 0
    singleton_counters: Mapping[str, SingletonCounters] = field(default_factory=dict[str, SingletonCounters])
    cron_counters: Mapping[str, CronCounters] = field(default_factory=dict[str, CronCounters])


class _Totals:
    """What was counted in one namespace, by one runner after the other."""

    def __init__(self) -> None:
        self.counted = dict.fromkeys(_ALL_COUNTERS, 0)
        self.calls: dict[str, int] = {}
        self.latency = [0] * (len(LATENCY_BUCKETS) + 1)
        self.latency_sum = 0.0
        self.singletons: dict[str, SingletonCounters] = {}
        self.crons: dict[str, CronCounters] = {}

    def add(self, other: _Totals | Reading) -> None:
        """Add what somebody else has counted."""
        if isinstance(other, Reading):
            counters = other.counters
            counted = {name: getattr(counters, name) for name in _COUNTERS}
            counted |= {name: getattr(other.durable, name) for name in _DURABLE}
            latency, latency_sum = counters.latency, counters.latency_sum
            singletons, crons = other.singleton_counters, other.cron_counters
        else:
            counted, latency, latency_sum = other.counted, other.latency, other.latency_sum
            singletons, crons = other.singletons, other.crons
        for name, of_one in singletons.items():
            self.singletons.setdefault(name, SingletonCounters()).add(of_one)
        for name, of_cron in crons.items():
            self.crons.setdefault(name, CronCounters()).add(of_cron)
        for name, number in counted.items():
            self.counted[name] += number
        for kind, number in other.calls.items():
            self.calls[kind] = self.calls.get(kind, 0) + number
        self.latency = [mine + more for mine, more in zip(self.latency, latency, strict=True)]
        self.latency_sum += latency_sum


class Readable:
    """A runner as the collector sees it."""

    def read(self) -> Reading:
        """Return what it shows now; called from whichever thread scrapes."""
        raise NotImplementedError


class ClusterCollector(Collector):
    """Shows every runner of this process that uses its registry."""

    def __init__(self) -> None:
        self._sources: list[Readable] = []
        self._past: dict[str, _Totals] = {}
        """What runners that left have counted: a counter that fell would look like a restart."""
        self._lock = threading.Lock()

    def add(self, source: Readable) -> None:
        """Show one more."""
        with self._lock:
            self._sources = [*self._sources, source]

    def remove(self, source: Readable) -> None:
        """Show one less; what it counted stays."""
        with self._lock:
            reading = source.read()
            self._past.setdefault(reading.namespace, _Totals()).add(reading)
            self._sources = [one for one in self._sources if one is not source]

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are known only to those who collect."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read everything now."""
        with self._lock:
            readings = [source.read() for source in self._sources]
            totals: dict[str, _Totals] = {}
            for namespace in (*self._past, *(reading.namespace for reading in readings)):
                if namespace not in totals:
                    totals[namespace] = _Totals()
                    totals[namespace].add(self._past.get(namespace) or _Totals())
        for reading in readings:
            totals[reading.namespace].add(reading)
        if totals:
            yield from _gauges(readings)
            yield from _counters(totals)
            yield _latency(totals)
            yield from singleton_metrics({name: total.singletons for name, total in totals.items()})
            yield from cron_metrics({name: total.crons for name, total in totals.items()})


_COLLECTORS: weakref.WeakKeyDictionary[CollectorRegistry, ClusterCollector] = weakref.WeakKeyDictionary()


def collector_of(registry: CollectorRegistry) -> ClusterCollector:
    """Return the collector of a registry, registering one if there is none yet."""
    collector = _COLLECTORS.get(registry)
    if collector is None:
        collector = _COLLECTORS[registry] = ClusterCollector()
        registry.register(collector)
    return collector


def _gauges(readings: list[Reading]) -> Iterator[Metric]:
    for name, gauge in _GAUGES.items():
        family = GaugeMetricFamily(f"rck_{name}", gauge.text, labels=["namespace"])
        values: dict[str, float] = {}
        for reading in readings:
            value, known = float(getattr(reading, name)), values.get(reading.namespace, 0.0)
            values[reading.namespace] = max(known, value) if gauge.is_shared else known + value
        for namespace, value in values.items():
            family.add_metric([namespace], value)
        yield family


def _counters(totals: dict[str, _Totals]) -> Iterator[Metric]:
    for name, text in _ALL_COUNTERS.items():
        family = CounterMetricFamily(f"rck_{name}", text, labels=["namespace"])
        for namespace, total in totals.items():
            family.add_metric([namespace], total.counted[name])
        yield family
    family = CounterMetricFamily("rck_calls", _CALLS, labels=["namespace", "kind"])
    for namespace, total in totals.items():
        for kind, number in total.calls.items():
            family.add_metric([namespace, kind], number)
    yield family


def _latency(totals: dict[str, _Totals]) -> Metric:
    family = HistogramMetricFamily("rck_delivery_seconds", _LATENCY, labels=["namespace"])
    for namespace, total in totals.items():
        family.add_metric([namespace], buckets(LATENCY_BUCKETS, total.latency), total.latency_sum)
    return family


def metrics_page() -> str:
    """Return the generated page that lists every metric."""
    rows = [(f"rck_{name}", "gauge", "namespace", gauge.text) for name, gauge in _GAUGES.items()]
    rows += [(f"rck_{name}_total", "counter", "namespace", text) for name, text in _ALL_COUNTERS.items()]
    rows.append(("rck_calls_total", "counter", "namespace, kind", _CALLS))
    rows.append(("rck_delivery_seconds", "histogram", "namespace", _LATENCY))
    rows += SINGLETON_METRICS + CRON_METRICS
    lines = [
        "# Metrics",
        "",
        "Generated from `redis_cluster_kit/observe/metrics.py`; a test keeps both equal.",
        "",
        "They are in the registry of `Cluster(metrics_registry=…)`, prometheus-client's own by default;",
        "`redis_cluster_kit.asgi.probes` serves them under `/metrics`. Nothing has a label for each entity.",
        "Counters belong to the process: they go on when a cluster is left and entered again.",
        "",
        "| name | kind | labels | what it shows |",
        "| --- | --- | --- | --- |",
    ]
    lines += [f"| `{name}` | {kind} | {labels} | {text} |" for name, kind, labels, text in rows]
    return "\n".join(lines) + "\n"
