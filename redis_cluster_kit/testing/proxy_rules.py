"""The faults a proxy can commit, each as a rule that counts how often it really happened.

A rule says what is to happen and to which bytes; doing it is the affair of `proxy_links` (what passes) and
`proxy` (who may connect).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Literal, Self, TypeAlias, TypeVar

from .resp_pairing import Command, Direction, Match

Way: TypeAlias = Literal["to_server", "to_client", "both"]
After: TypeAlias = Literal["silent", "reset", "close"]
R = TypeVar("R", bound="Rule")
P = TypeVar("P", bound="Passage")


class FaultNeverFiredError(AssertionError):
    """A fault that a test set up did not happen, or not as often as it should: the test proves nothing."""

    def __init__(self, rule: Rule, expected: str) -> None:
        super().__init__(
            f"expected {rule.name!r} to have happened {expected}, it happened {rule.count} times"
        )
        self.rule = rule


class Rule:
    """One fault. In force until lifted; `with proxy.cut("both") as rule:` lifts it at the end."""

    def __init__(self, name: str, on_lift: Callable[[], None] | None = None) -> None:
        self.name = name
        self.count = 0
        """How often it really happened."""
        self.active = True
        self._on_lift = on_lift

    def assert_fired(self, times: int | None = None) -> None:
        """Raise unless it really happened: at least once, or exactly so often."""
        if times is None and not self.count:
            raise FaultNeverFiredError(self, "at least once")
        if times is not None and self.count != times:
            raise FaultNeverFiredError(self, f"exactly {times} times")

    def lift(self) -> None:
        """Stop the fault; lifting twice is the same as once."""
        if self.active:
            self.active = False
            if self._on_lift is not None:
                self._on_lift()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.lift()

    def __repr__(self) -> str:
        return f"<{self.name}: {self.count} times, {'in force' if self.active else 'lifted'}>"


class Loss(Rule):
    """Loses one reply, or one command before the server sees it."""

    def __init__(
        self, what: Literal["reply", "command"], match: Match, nth: int, then: After, errors: bool
    ) -> None:
        super().__init__(f"lose {what}")
        self.what: Literal["reply", "command"] = what
        self.then: After = then
        self.errors = errors
        self.collateral = 0
        """Other commands of the same connection, already sent, whose replies were lost with this one."""
        self._match = match
        self._wait = from_one(nth)

    def takes(self, frame: Command) -> bool:
        """Count a command; say whether it is the one to lose."""
        if not self.active or self._wait <= 0 or not self._match(frame):
            return False
        self._wait -= 1
        return self._wait == 0

    def try_the_next(self) -> None:
        """Aim at the next match: this one turned out not to have run, or was lost by another rule."""
        self._wait = 1


class Passage(Rule):
    """A rule about the bytes of one direction, or of both."""

    def __init__(self, name: str, way: Way, on_lift: Callable[[], None] | None = None) -> None:
        super().__init__(f"{name} {way}", on_lift)
        self.way: Way = way

    def covers(self, direction: Direction) -> bool:
        """Whether it is in force for this direction."""
        return self.active and self.way in (direction, "both")


class Delay(Passage):
    """Holds some packets for a random time."""

    def __init__(self, way: Way, low: float, high: float, probability: float, seed: int) -> None:
        super().__init__("delay", way)
        if not 0 <= low <= high:
            raise ValueError(f"expected 0 <= low <= high, got {low} and {high}")
        self._range = (low, high)
        self._probability = probability
        self._random = random.Random(seed)

    def draw(self) -> float:
        """Return how long to hold one packet: 0 for those that pass at once."""
        if self._random.random() >= self._probability:
            return 0.0
        self.count += 1
        return self._random.uniform(*self._range)


class Cut(Passage):
    """Swallows bytes."""

    def __init__(self, way: Way, on_lift: Callable[[], None] | None) -> None:
        super().__init__("cut", way, on_lift)


class Hold(Passage):
    """Lets nothing through until it is lifted, then everything."""

    def __init__(self, way: Way) -> None:
        self.over = asyncio.Event()
        super().__init__("hold", way, self.over.set)


class Drip(Passage):
    """Passes a few bytes at a time."""

    def __init__(self, way: Way, size: int, interval: float) -> None:
        super().__init__("drip", way)
        self.size = from_one(size)
        self.interval = interval


class Refusal(Rule):
    """Lets nobody connect."""

    def __init__(self, how: Literal["closed", "reset"], on_lift: Callable[[], None]) -> None:
        super().__init__(f"refuse ({how})", on_lift)
        self.how = how


class RuleBook:
    """Every rule a proxy was ever given, lifted ones too."""

    def __init__(self) -> None:
        self.all: list[Rule] = []

    def add(self, rule: R) -> R:
        """Put a rule in force."""
        self.all.append(rule)
        return rule

    def in_force(self, kind: type[R]) -> list[R]:
        """Return the rules of this kind that are not lifted."""
        return [rule for rule in self.all if rule.active and isinstance(rule, kind)]

    def covering(self, kind: type[P], direction: Direction) -> list[P]:
        """Return the rules of this kind that are in force for this direction."""
        return [rule for rule in self.in_force(kind) if rule.covers(direction)]

    def losses(self, frame: Command) -> list[Loss]:
        """Show a command to every rule that counts commands; return those that aim at it."""
        return [rule for rule in self.in_force(Loss) if rule.takes(frame)]


def from_one(number: int) -> int:
    """Return the number, if it is one that counts something."""
    if number < 1:
        raise ValueError(f"expected 1 or more, got {number}")
    return number
