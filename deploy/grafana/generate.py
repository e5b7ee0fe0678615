"""Writes `dashboard.json`: `python deploy/grafana/generate.py`, or `nox -s pages`.

Each row of `ROWS` is a row of the dashboard, each panel a title, a unit and what it shows. A test keeps the
file equal to this, and every metric of docs/reference/metrics.md on it: a new one gets a panel here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("dashboard.json")
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
ALL = 'namespace=~"$namespace", instance=~"$instance"'
WIDTH = 24


class Query(NamedTuple):
    """One line, or several by label. `%` in the expression stands for the chosen namespace and instances."""

    expression: str
    legend: str


class Panel(NamedTuple):
    """One graph; `width` is of 24 columns."""

    title: str
    unit: str
    text: str
    queries: tuple[Query, ...]
    width: int = 8


def _each(metric: str, legend: str = "{{namespace}} {{instance}}") -> Query:
    return Query(f"sum by (namespace, instance) ({metric}{{%}})", legend)


def _rate(metric: str, legend: str) -> Query:
    return Query(f"sum by (namespace) (rate({metric}{{%}}[$__rate_interval]))", legend)


def _by_cron(metric: str, legend: str = "{{namespace}} {{cron}}") -> Query:
    return Query(f"sum by (namespace, cron) (rate({metric}{{%}}[$__rate_interval]))", legend)


def _of_crons(part: float, metric: str, legend: str) -> Query:
    buckets = f"rate({metric}_bucket{{%}}[$__rate_interval])"
    return Query(f"histogram_quantile({part}, sum by (namespace, cron, le) ({buckets}))", legend)


def _delivery(part: float, legend: str) -> Query:
    buckets = "rate(rck_delivery_seconds_bucket{%}[$__rate_interval])"
    return Query(f"histogram_quantile({part}, sum by (namespace, le) ({buckets}))", legend)


_DURATIONS = "rate(singleton_duration_seconds_bucket{%}[$__rate_interval])"
_SINGLETON = "{{namespace}} {{singleton}}"
_CRON = "{{namespace}} {{cron}}"

ROWS: dict[str, tuple[Panel, ...]] = {
    "The cluster": (
        Panel(
            "Runners",
            "short",
            "Live runners, and those that are not leaving.",
            (
                Query("max by (namespace) (rck_runners{%})", "{{namespace}} live"),
                Query("max by (namespace) (rck_runners_healthy{%})", "{{namespace}} staying"),
            ),
        ),
        Panel("Shards by runner", "short", "Equal shares, by weight.", (_each("rck_shards"),)),
        Panel(
            "Shards missing",
            "short",
            "Shards a runner should own and does not: a moment at each change of runners, 0 otherwise.",
            (_each("rck_shards_missing"),),
        ),
        Panel(
            "Writes refused",
            "ops",
            "Fenced: another runner owns the shard. Lost: the message was gone, or the state had changed.",
            (
                _rate("rck_fenced_total", "{{namespace}} fenced"),
                _rate("rck_lost_total", "{{namespace}} lost"),
            ),
        ),
        Panel(
            "Event loop lag",
            "s",
            "Above the lease's TTL a runner loses its shards.",
            (Query("max by (namespace, instance) (rck_loop_lag_seconds{%})", "{{namespace}} {{instance}}"),),
        ),
        Panel(
            "Entities in memory", "short", "Limited by RCK_ENTITIES_MAX_RESIDENT.", (_each("rck_entities"),)
        ),
    ),
    "Messages": (
        Panel(
            "Turns",
            "ops",
            "Committed, answered with a declared error, raised.",
            (
                _rate("rck_commits_total", "{{namespace}} committed"),
                _rate("rck_declared_errors_total", "{{namespace}} declared error"),
                _rate("rck_failures_total", "{{namespace}} raised"),
            ),
        ),
        Panel(
            "Delivery",
            "s",
            "From the mailbox to the handler.",
            (
                _delivery(0.5, "{{namespace}} p50"),
                _delivery(0.99, "{{namespace}} p99"),
                Query(
                    "sum by (namespace) (rate(rck_delivery_seconds_sum{%}[$__rate_interval]))"
                    " / sum by (namespace) (rate(rck_delivery_seconds_count{%}[$__rate_interval]))",
                    "{{namespace}} mean",
                ),
            ),
        ),
        Panel("In mailboxes", "short", "Waiting or being handled.", (_each("rck_mailbox_messages"),)),
        Panel(
            "Calls made",
            "ops",
            "By kind. refused_full: the mailbox was full. looked_up: an answer was late.",
            (
                Query(
                    "sum by (namespace, kind) (rate(rck_calls_total{%}[$__rate_interval]))",
                    "{{namespace}} {{kind}}",
                ),
            ),
        ),
        Panel(
            "Dead letters",
            "short",
            "Those there are, and those that came in the last hour.",
            (
                Query("sum by (namespace) (rck_dead_letters{%})", "{{namespace}} there"),
                Query("sum by (namespace) (increase(rck_buried_total{%}[1h]))", "{{namespace}} last hour"),
            ),
        ),
        Panel(
            "Scheduled messages delivered",
            "ops",
            "Their time had come.",
            (_rate("rck_promoted_total", "{{namespace}}"),),
        ),
        Panel(
            "How turns begin",
            "ops",
            "Quick: with a nudge's own message. Marked: a nudge that could not be used at once. Rescued: "
            "only the poll found the message; near 0 in good health.",
            (
                _rate("rck_quick_total", "{{namespace}} quick"),
                _rate("rck_marked_total", "{{namespace}} marked"),
                _rate("rck_rescued_total", "{{namespace}} rescued"),
            ),
        ),
        Panel(
            "Entities coming and going",
            "ops",
            "Brought into memory, and unloaded because they were idle.",
            (
                _rate("rck_activated_total", "{{namespace}} activated"),
                _rate("rck_passivated_total", "{{namespace}} passivated"),
            ),
        ),
        Panel(
            "Unknown types and rpcs",
            "short",
            "Met in the last hour: a roll-out in which senders were ahead of hosts.",
            (Query("sum by (namespace) (increase(rck_unknown_total{%}[1h]))", "{{namespace}}"),),
        ),
    ),
    "Singletons": (
        Panel(
            "Singletons led",
            "short",
            "By runner, and those among them that are stale, overdue, or cannot be loaded or saved.",
            (
                _each("rck_singletons", "{{namespace}} {{instance}} led"),
                _each("rck_singletons_unhealthy", "{{namespace}} {{instance}} unhealthy"),
            ),
        ),
        Panel(
            "Since the last execution",
            "s",
            "Of those that had one since their leader's process began.",
            (
                Query(
                    "time() - max by (namespace, singleton) (singleton_last_execution{%} > 0)",
                    _SINGLETON,
                ),
            ),
        ),
        Panel(
            "Executions",
            "ops",
            "Those that ended without an error, and runs that raised.",
            (
                Query(
                    "sum by (namespace, singleton) (rate(singleton_executions_total{%}[$__rate_interval]))",
                    _SINGLETON,
                ),
                Query(
                    "sum by (namespace, singleton) (rate(singleton_failures_total{%}[$__rate_interval]))",
                    f"{_SINGLETON} raised",
                ),
            ),
        ),
        Panel(
            "Duration of executions",
            "s",
            "At the 99th percentile.",
            (
                Query(
                    f"histogram_quantile(0.99, sum by (namespace, singleton, le) ({_DURATIONS}))", _SINGLETON
                ),
            ),
        ),
        Panel(
            "State errors",
            "short",
            "In the last hour, by reason.",
            (
                Query(
                    "sum by (namespace, singleton, type) (increase(singleton_state_errors_total{%}[1h]))",
                    f"{_SINGLETON} {{{{type}}}}",
                ),
            ),
        ),
    ),
    "Crons": (
        Panel(
            "Ticks",
            "ops",
            "Those that ended without an error, and attempts that raised.",
            (
                _by_cron("cron_executions_total"),
                _by_cron("cron_failures_total", f"{_CRON} raised"),
            ),
        ),
        Panel(
            "Lateness of ticks",
            "s",
            "From the instant to the first line of its function: the median, and one of a hundred.",
            (
                _of_crons(0.5, "cron_lateness_seconds", f"{_CRON} p50"),
                _of_crons(0.99, "cron_lateness_seconds", f"{_CRON} p99"),
            ),
        ),
        Panel(
            "Duration of ticks",
            "s",
            "At the 99th percentile.",
            (_of_crons(0.99, "cron_duration_seconds", _CRON),),
        ),
        Panel(
            "Since the last tick",
            "s",
            "Since one ended well on a process that is still there.",
            (Query("time() - max by (namespace, cron) (cron_last_execution{%} > 0)", _CRON),),
        ),
        Panel(
            "Instants skipped",
            "short",
            "In the last hour. breaker: it is open. overlap: an earlier tick was not done. late: nobody ran "
            "it in time.",
            (
                Query(
                    "sum by (namespace, cron, reason) (increase(cron_skipped_total{%}[1h]))",
                    f"{_CRON} {{{{reason}}}}",
                ),
            ),
        ),
        Panel(
            "Breakers open",
            "s",
            "For how long instants are still skipped.",
            (Query("max by (namespace, cron) (cron_breaker_open_until{%}) - time() > 0", _CRON),),
        ),
    ),
    "Durable steps": (
        Panel(
            "Steps",
            "ops",
            "Run and recorded, found recorded, raised. Replayed far above run: turns fail after their steps.",
            (
                _rate("rck_steps_run_total", "{{namespace}} run"),
                _rate("rck_steps_replayed_total", "{{namespace}} replayed"),
                _rate("rck_steps_failed_total", "{{namespace}} raised"),
            ),
        ),
        Panel("Waiting durably", "short", "Messages that are parked, in no memory.", (_each("rck_parked"),)),
        Panel(
            "Parking and waking",
            "ops",
            "Turns that left memory, and those whose sleep was over.",
            (
                _rate("rck_parks_total", "{{namespace}} parked"),
                _rate("rck_wakes_total", "{{namespace}} woken"),
            ),
        ),
        Panel(
            "Deferreds",
            "ops",
            "Resolved, and those whose waiter was woken late: the process that resolved them had died.",
            (
                _rate("rck_deferreds_resolved_total", "{{namespace}} resolved"),
                _rate("rck_deferreds_rescued_total", "{{namespace}} rescued"),
            ),
        ),
        Panel(
            "Executions that need somebody",
            "short",
            "Set aside: those there are, and those of the last hour. Conflicts: durable calls of the last "
            "hour with another input than the one recorded.",
            (
                Query("max by (namespace) (rck_executions_set_aside{%})", "{{namespace}} there"),
                Query(
                    "sum by (namespace) (increase(rck_executions_aside_total{%}[1h]))",
                    "{{namespace}} last hour",
                ),
                Query(
                    "sum by (namespace) (increase(rck_step_conflicts_total{%}[1h]))",
                    "{{namespace}} conflicts",
                ),
            ),
        ),
        Panel(
            "Journals deleted",
            "ops",
            "Of executions that have ended, and of those whose retention has passed.",
            (_rate("rck_executions_forgotten_total", "{{namespace}}"),),
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    """Return what Grafana imports."""
    return {
        "title": "redis-cluster-kit",
        "uid": "redis-cluster-kit",
        "description": "Runners, shards, messages, singletons, crons; made by deploy/grafana/generate.py.",
        "tags": ["redis-cluster-kit"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(_variables())},
        "annotations": {"list": []},
        "panels": list(_panels()),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus"}
    chosen = {"namespace": "rck_runners", "instance": 'rck_runners{namespace=~"$namespace"}'}
    for name, metric in chosen.items():
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": f"label_values({metric}, {name})", "refId": name},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        }


def _panels() -> Iterator[dict[str, Any]]:
    number, top, height = 0, 0, 8
    for title, panels in ROWS.items():
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
            "panels": [],
        }
        top, left = top + 1, 0
        for panel in panels:
            if left + panel.width > WIDTH:
                top, left = top + height, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": height}
            yield {"id": number, "gridPos": place, **_graph(panel)}
            left += panel.width
        top += height


def _graph(panel: Panel) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": SOURCE,
                "expr": query.expression.replace("%", ALL),
                "legendFormat": query.legend,
            }
            for place, query in enumerate(panel.queries)
        ],
    }


def dashboard_text() -> str:
    """Return the file as it should be."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(dashboard_text())
