"""The metrics of crons. Names of crons are labels, as a release registers them; instants never are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from redis_cluster_kit.runtime import DURATION_BUCKETS, LATENCY_BUCKETS, CronCounters

from .histograms import buckets

_LABELS = ("namespace", "cron")
_DURATION = "of a tick that ended without an error"
_LATENESS = "from the instant to the first line of its function, first attempts only"
_EXECUTIONS = "ticks that ended without an error"
_FAILURES = "attempts that raised"
_SKIPPED = "instants nothing ran for; `reason` is breaker, overlap or late"
_LAST = "when a tick ended last in this process, Unix seconds; 0: never"
_OPEN = "until when its circuit breaker is open, Unix seconds, as far as this process knows; 0: it is closed"

CRON_METRICS = [
    ("cron_duration_seconds", "histogram", ", ".join(_LABELS), _DURATION),
    ("cron_lateness_seconds", "histogram", ", ".join(_LABELS), _LATENESS),
    ("cron_executions_total", "counter", ", ".join(_LABELS), _EXECUTIONS),
    ("cron_failures_total", "counter", ", ".join(_LABELS), _FAILURES),
    ("cron_skipped_total", "counter", "namespace, cron, reason", _SKIPPED),
    ("cron_last_execution", "gauge", ", ".join(_LABELS), _LAST),
    ("cron_breaker_open_until", "gauge", ", ".join(_LABELS), _OPEN),
]
"""Name, kind, labels and text of each, for the reference page."""


def cron_metrics(counted: Mapping[str, Mapping[str, CronCounters]]) -> Iterator[Metric]:
    """Yield the metrics of every cron in each namespace; nothing if there is none."""
    found = [(namespace, name, one) for namespace, all_of in counted.items() for name, one in all_of.items()]
    if not found:
        return
    duration = HistogramMetricFamily("cron_duration_seconds", _DURATION, labels=_LABELS)
    lateness = HistogramMetricFamily("cron_lateness_seconds", _LATENESS, labels=_LABELS)
    executions = CounterMetricFamily("cron_executions", _EXECUTIONS, labels=_LABELS)
    failures = CounterMetricFamily("cron_failures", _FAILURES, labels=_LABELS)
    skipped = CounterMetricFamily("cron_skipped", _SKIPPED, labels=(*_LABELS, "reason"))
    last = GaugeMetricFamily("cron_last_execution", _LAST, labels=_LABELS)
    is_open = GaugeMetricFamily("cron_breaker_open_until", _OPEN, labels=_LABELS)
    for namespace, name, one in found:
        labels = (namespace, name)
        duration.add_metric(labels, buckets(DURATION_BUCKETS, one.durations), one.duration_sum)
        lateness.add_metric(labels, buckets(LATENCY_BUCKETS, one.lateness), one.lateness_sum)
        executions.add_metric(labels, one.executions)
        failures.add_metric(labels, one.failures)
        last.add_metric(labels, one.last_execution)
        is_open.add_metric(labels, one.open_until / 1000)
        for reason, number in sorted(one.skipped.items()):
            skipped.add_metric((namespace, name, reason), number)
    yield from (duration, lateness, executions, failures, skipped, last, is_open)
