"""Histograms as Prometheus has them: each bucket counts what is not above its limit."""

from __future__ import annotations

from collections.abc import Sequence


def buckets(limits: Sequence[float], numbers: Sequence[int]) -> list[tuple[str, float]]:
    """Return the buckets of numbers counted between limits, the last of them above all limits."""
    total, found = 0, list[tuple[str, float]]()
    for limit, number in zip((*map(str, limits), "+Inf"), numbers, strict=True):
        total += number
        found.append((limit, float(total)))
    return found
