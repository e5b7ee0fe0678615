"""The metrics of singletons. `type` is what runs by that name; of an error it is its reason.

Only names a release registers become labels, never entities or anything users of the service make up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from redis_cluster_kit.runtime import DURATION_BUCKETS, SingletonCounters

from .histograms import buckets

_LABELS = ("namespace", "singleton", "type")
_KIND = "singleton"
_DURATION = "of an execution that ended without an error"
_EXECUTIONS = "executions that ended without an error"
_FAILURES = "runs of its function that raised"
_LAST = "when an execution ended last in this process, Unix seconds; 0: never"
_ERRORS = "errors of state, heartbeat and hand-off; `type` is the reason"

SINGLETON_METRICS = [
    ("singleton_duration_seconds", "histogram", ", ".join(_LABELS), _DURATION),
    ("singleton_executions_total", "counter", ", ".join(_LABELS), _EXECUTIONS),
    ("singleton_failures_total", "counter", ", ".join(_LABELS), _FAILURES),
    ("singleton_last_execution", "gauge", ", ".join(_LABELS), _LAST),
    ("singleton_state_errors_total", "counter", ", ".join(_LABELS), _ERRORS),
]
"""Name, kind, labels and text of each, for the reference page."""


def singleton_metrics(counted: Mapping[str, Mapping[str, SingletonCounters]]) -> Iterator[Metric]:
    """Yield the metrics of every singleton in each namespace; nothing if there is none."""
    found = [(namespace, name, one) for namespace, all_of in counted.items() for name, one in all_of.items()]
    if not found:
        return
    duration = HistogramMetricFamily("singleton_duration_seconds", _DURATION, labels=_LABELS)
    executions = CounterMetricFamily("singleton_executions", _EXECUTIONS, labels=_LABELS)
    failures = CounterMetricFamily("singleton_failures", _FAILURES, labels=_LABELS)
    last = GaugeMetricFamily("singleton_last_execution", _LAST, labels=_LABELS)
    errors = CounterMetricFamily("singleton_state_errors", _ERRORS, labels=_LABELS)
    for namespace, name, one in found:
        labels = (namespace, name, _KIND)
        executions.add_metric(labels, one.executions)
        failures.add_metric(labels, one.failures)
        last.add_metric(labels, one.last_execution)
        duration.add_metric(labels, buckets(DURATION_BUCKETS, one.durations), one.duration_sum)
        for reason, number in sorted(one.errors.items()):
            errors.add_metric((namespace, name, reason), number)
    yield from (duration, executions, failures, last, errors)
