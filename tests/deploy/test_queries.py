"""Rules and dashboard use metrics and labels that exist, and the dashboard shows all of them."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest

from .manifests import ROOT
from .queries import DASHBOARD, RULES, SERIES, labels_of, queries, selectors

GENERATOR = ROOT / "deploy" / "grafana" / "generate.py"


@pytest.mark.parametrize(
    ("expression", "used"), [pytest.param(*found[1:], id=found[0]) for found in queries()]
)
def test_it_uses_metrics_and_labels_that_exist(expression: str, used: set[str]) -> None:
    labels = labels_of(promql.parse(expression))
    assert labels is not None
    assert used <= labels, "its text names a label that is not left"


@pytest.mark.parametrize(
    "wrong",
    [
        "rck_nothing_total",
        'rck_calls_total{sort="ask"}',
        "sum by (shard) (rck_shards)",
        "sum(rck_shards)",
        "sum without (instance) (rck_shards)",
        "rate(rck_shards[5m])",
        "sum by (namespace) (rck_shards) > sum by (instance) (rck_shards)",
        "histogram_quantile(0.9, sum by (namespace) (rate(rck_delivery_seconds_bucket[5m])))",
    ],
)
def test_what_does_not_exist_is_found(wrong: str) -> None:
    with pytest.raises(AssertionError):
        labels_of(promql.parse(wrong))


def test_the_dashboard_shows_every_metric() -> None:
    shown = {
        SERIES[selector.name].metric
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", ())
        for selector in selectors(target["expr"].replace("$__rate_interval", "5m"))
    }
    missing = {series.metric for series in SERIES.values()} - shown
    assert not missing, f"give {missing} a panel in deploy/grafana/generate.py, then run `nox -s pages`"


def test_every_line_of_the_dashboard_obeys_its_variables() -> None:
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    assert set(variables) == {"datasource", "namespace", "instance"}
    for name in ("namespace", "instance"):
        asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variables[name]["query"]["query"])
        assert asked is not None
        assert asked[2] == name
        assert name in (labels_of(promql.parse(asked[1])) or ())
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}"
            for selector in selectors(target["expr"].replace("$__rate_interval", "5m")):
                chosen = {(one.name, one.value) for one in selector.matchers.matchers}
                assert chosen == {("namespace", "$namespace"), ("instance", "$instance")}, target["expr"]


def test_panels_do_not_overlap() -> None:
    covered = Counter(
        (column, row)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for column in range(place["x"], place["x"] + place["w"])
        for row in range(place["y"], place["y"] + place["h"])
    )
    assert max(covered.values()) == 1
    assert max(column for column, _ in covered) < 24
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(numbers) == len(set(numbers))


def test_the_dashboard_equals_its_source() -> None:
    spec = importlib.util.spec_from_file_location("grafana_generate", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.FILE.read_text() == module.dashboard_text(), "run `nox -s pages`"


def test_every_alert_says_what_happened_and_what_to_do() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names)) >= 16
    for rule in RULES:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "action"}
        assert min(map(len, rule["annotations"].values())) > 20


PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_metrics_named_in_pages_exist(page: Path) -> None:
    named = set(re.findall(r"`((?:rck|singleton|cron)_\w+_(?:total|seconds))`", page.read_text()))
    assert named <= {series.metric for series in SERIES.values()}
