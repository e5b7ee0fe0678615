"""Draws what was measured: `python -m benchmarks.report` makes a picture of each result, light and dark.

A result in `benchmarks/results/` may hold `charts`: a list of `{"title", "unit", "bars": {label: value}}`,
with `"promise": value` where a line is to be shown, and `"most": true` where that is an upper bound. The
tables are `docs/reference/figures.md`, which `nox -s pages` writes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.machine import RESULTS

ASSETS = RESULTS.parent.parent / "docs" / "assets"
SHADES = {"light": ("#1a1a1a", "#3f51b5", "#c62828"), "dark": ("#e8e8e8", "#9fa8da", "#ef9a9a")}
"""Text, bars and promise of each picture; its background is transparent."""


class Chart(msgspec.Struct, frozen=True):
    """Bars that are compared with one another and, where there is one, with a promise."""

    title: str
    unit: str
    bars: dict[str, float]
    promise: float | None = None
    most: bool = False
    """Whether the promise is an upper bound."""


def charts(path: Path) -> list[Chart]:
    """Return the charts a result asks for."""
    return msgspec.convert(json.loads(path.read_text()).get("charts", []), list[Chart])


def draw(found: list[Chart], path: Path, shade: str) -> None:
    """Draw charts below one another into a PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    text, bar, line = SHADES[shade]
    heights = [_height(chart) for chart in found]
    with mpl.rc_context({"text.color": text, "axes.labelcolor": text, "font.size": 10}):
        figure, axes = plt.subplots(
            len(found),
            1,
            figsize=(8, sum(heights)),
            squeeze=False,
            layout="constrained",
            height_ratios=heights,
        )
        for axis, chart in zip(axes[:, 0], found, strict=True):
            _draw_one(axis, chart, text, bar, line)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110, transparent=True, metadata={"Software": None})
        plt.close(figure)


def _height(chart: Chart) -> float:
    return 0.9 + 0.42 * len(chart.bars) + (0.0 if chart.promise is None else 0.2)


def _draw_one(axis: Any, chart: Chart, text: str, bar: str, line: str) -> None:
    bars = axis.barh(list(chart.bars), list(chart.bars.values()), color=bar, height=0.6)
    axis.bar_label(bars, labels=[f"{value:,.6g}" for value in chart.bars.values()], padding=4, color=text)
    promise = ""
    if chart.promise is not None:
        bound = "most" if chart.most else "least"
        promise = f"\ndashed: promised, at {bound} {chart.promise:,.6g} {chart.unit}"
        axis.axvline(chart.promise, color=line, linestyle="--")
    axis.set_title(f"{chart.title}{promise}", loc="left", color=text, fontsize=11)
    axis.set_xlabel(chart.unit)
    axis.invert_yaxis()
    axis.margins(x=0.15)
    axis.locator_params(axis="x", nbins=5)
    axis.xaxis.set_major_formatter("{x:,.6g}")
    axis.tick_params(colors=text, length=0)
    for name, spine in axis.spines.items():
        spine.set_visible(name == "left")
        spine.set_color(text)


def main() -> int:
    """Draw every result that has charts; where matplotlib is missing, say so."""
    try:
        import matplotlib as _  # noqa: F401
    except ImportError:
        print("no pictures: matplotlib is not installed (`nox -s bench` has it)")
        return 0
    for path in sorted(RESULTS.glob("*.json")):
        found = charts(path)
        for shade in SHADES if found else ():
            draw(found, ASSETS / f"{path.stem}-{shade}.png", shade)
            print(f"drawn: docs/assets/{path.stem}-{shade}.png")
    print("`nox -s pages` writes the tables")
    return 0


if __name__ == "__main__":
    sys.exit(main())
