"""Every PromQL expression of rules and dashboard, and the labels of what each yields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import promql_parser as promql
import yaml

from redis_cluster_kit.observe import metrics_page

from .manifests import ROOT

PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "rules.yaml").read_text())["groups"]
    for rule in group["rules"]
]
SCRAPE: dict[str, Any] = yaml.safe_load((PROMETHEUS / "scrape.yaml").read_text())["scrape_configs"][0]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "dashboard.json").read_text())
OF_THE_SCRAPE = {"instance"}
"""Labels that Prometheus adds to everything, as scrape.yaml says."""
METRICS_PATHS = {"probes": "/metrics"} | {
    rule["regex"]: rule["replacement"]
    for rule in SCRAPE["relabel_configs"]
    if rule.get("target_label") == "__metrics_path__"
}
"""What is scraped on each named port."""


class Series(NamedTuple):
    """A time series as Prometheus has it: what kind of metric, and its labels."""

    metric: str
    grows: bool
    labels: frozenset[str]


def known_series() -> Mapping[str, Series]:
    """Every series that the kit shows, from what its reference page is generated from."""
    found: dict[str, Series] = {}
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\w, ]+) \|", metrics_page(), re.MULTILINE)
    assert len(rows) >= 30
    for metric, kind, listed in rows:
        labels = frozenset(listed.split(", ")) | OF_THE_SCRAPE
        if kind == "histogram":
            found[f"{metric}_bucket"] = Series(metric, True, labels | {"le"})
            found[f"{metric}_sum"] = found[f"{metric}_count"] = Series(metric, True, labels)
        else:
            found[metric] = Series(metric, kind == "counter", labels)
    return found


SERIES = known_series()


def queries() -> Iterator[tuple[str, str, set[str]]]:
    """Where it stands, the expression, and the labels that its texts use."""
    for rule in RULES:
        texts = " ".join(rule["annotations"].values())
        yield rule["alert"], rule["expr"], set(re.findall(r"\$labels\.(\w+)", texts))
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$__rate_interval", "5m")
            legend = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", target["legendFormat"]))
            yield f"{panel['title']} {target['refId']}", expression, legend


def selectors(expression: str) -> list[Any]:
    """Every selector of an expression."""
    found: list[Any] = []

    def visit(part: Any) -> None:
        if isinstance(part, promql.VectorSelector):
            found.append(part)

    promql.walk(promql.parse(expression), visit)
    return found


def labels_of(part: Any) -> set[str] | None:
    """The labels of what an expression yields, None for a number. What cannot be so is an AssertionError."""
    match part:
        case promql.NumberLiteral() | promql.StringLiteral():
            return None
        case promql.VectorSelector():
            return _selected(part)
        case promql.MatrixSelector():
            return _selected(part.vector_selector)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return labels_of(part.expr)
        case promql.AggregateExpr():
            return _aggregated(part)
        case promql.BinaryExpr():
            return _combined(part)
        case promql.Call():
            return _called(part)
    raise AssertionError(f"an expression of a kind nobody expected: {part!r}")


def _selected(part: Any) -> set[str]:
    assert part.name in SERIES, f"there is no series {part.name}"
    labels = set(SERIES[part.name].labels)
    unknown = {matcher.name for matcher in part.matchers.matchers} - labels
    assert not unknown, f"{part.name} has no label {unknown}"
    return labels


def _aggregated(part: Any) -> set[str]:
    below = labels_of(part.expr)
    assert below is not None
    assert part.modifier is not None, "say by which labels"
    assert part.modifier.type == promql.AggModifierType.By
    unknown = set(part.modifier.labels) - below
    assert not unknown, f"{part.expr} has no label {unknown}"
    return set(part.modifier.labels)


def _combined(part: Any) -> set[str] | None:
    left, right = labels_of(part.lhs), labels_of(part.rhs)
    assert left is None or right is None or left == right, f"{part}: {left} never meet {right}"
    return right if left is None else left


def _called(part: Any) -> set[str] | None:
    vectors = [labels for one in part.args if (labels := labels_of(one)) is not None]
    if part.func.name in ("rate", "increase"):
        (matrix,) = part.args
        name = matrix.vector_selector.name
        assert SERIES[name].grows, f"{name} is no counter: it has no {part.func.name}"
    if part.func.name == "histogram_quantile":
        assert "le" in vectors[0], f"{part} needs the label le"
        return vectors[0] - {"le"}
    return vectors[0] if vectors else None
