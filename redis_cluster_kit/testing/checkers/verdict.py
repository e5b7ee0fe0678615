"""What a checker hands back: the invariants broken, and how much it looked at.

A verdict without violations that examined nothing proves nothing, hence `Verdict.require(...)`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise: which, what happened, and the rows that show it."""

    invariant: str
    text: str
    evidence: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


class InvariantBrokenError(AssertionError):
    """A verdict with violations, or one that looked at too little to mean anything."""


@dataclass(slots=True)
class Verdict:
    """What a checker found, and how much it examined."""

    violations: list[Violation] = field(default_factory=list[Violation])
    examined: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def invariants(self) -> set[str]:
        """The invariants that were broken."""
        return {violation.invariant for violation in self.violations}

    def require(self, **at_least: float) -> Self:
        """Raise unless nothing is broken and at least so much was examined: `require(ordered_pairs=100)`."""
        if self.violations:
            shown = "\n".join(f"{v}  {v.evidence}" for v in self.violations[:10])
            raise InvariantBrokenError(
                f"{len(self.violations)} violations; examined {self.examined}\n{shown}"
            )
        short = {name: got for name, least in at_least.items() if (got := self.examined.get(name, 0)) < least}
        if short:
            raise InvariantBrokenError(f"expected to examine at least {at_least}, examined only {short}")
        return self

    def broken(self, invariant: str, text: str, *evidence: Any) -> None:
        """Add a violation."""
        self.violations.append(Violation(invariant, text, evidence))


def together(*verdicts: Verdict) -> Verdict:
    """Join verdicts; counts of the same name are added, of what is `longest` the longest stays."""
    joined = Verdict()
    for verdict in verdicts:
        joined.violations += verdict.violations
        for name, number in verdict.examined.items():
            so_far = joined.examined.get(name, 0)
            longest = name.startswith("longest")
            joined.examined[name] = max(so_far, number) if longest else so_far + number
    return joined


def by(rows: Iterable[T], key: Callable[[T], Hashable]) -> dict[Any, list[T]]:
    """Group rows, keeping their order."""
    groups: defaultdict[Any, list[T]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return dict(groups)
