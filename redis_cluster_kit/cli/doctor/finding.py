"""What a check says: a verdict on one point, what was found, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One point. `problem`: a promise does not hold so. `warning`: look at it. Also `ok` may have advice."""

    check: str
    where: str
    verdict: Verdict
    found: str
    advice: str = ""


def ok(check: str, where: str, found: str, advice: str = "") -> Finding:
    """Return a point that is as it should be."""
    return Finding(check, where, "ok", found, advice)


def warning(check: str, where: str, found: str, advice: str) -> Finding:
    """Return a point to look at."""
    return Finding(check, where, "warning", found, advice)


def problem(check: str, where: str, found: str, advice: str) -> Finding:
    """Return a point that must be mended."""
    return Finding(check, where, "problem", found, advice)


def count(findings: Iterable[Finding], verdict: Verdict) -> int:
    """Return how many have this verdict."""
    return sum(1 for finding in findings if finding.verdict == verdict)
