"""What one scenario is: the state a script meets, the call, and what it must answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

Command: TypeAlias = tuple[str | int | bytes, ...]
Values: TypeAlias = dict[str, Any]

FAR = 9_000_000_000_000  # server milliseconds, in the year 2255
OLD, FENCE, NEWER = "72057594037927936", "72057594037927937", "72057594037927938"  # beyond 2^53
NONCE = "mine"
TTL = 60_000


@dataclass(frozen=True, kw_only=True)
class Scenario:
    script: str
    word: str
    """What it must answer."""
    each_words: tuple[str, ...] = ()
    """What it must answer for each member of the group."""
    setup: tuple[Command, ...] = ()
    values: Values = field(default_factory=dict[str, Any])
    each: tuple[Values, ...] = ()

    @property
    def name(self) -> str:
        return " ".join((self.script, self.word, *self.each_words))


def install_fence(fence: str, number: str = FENCE, nonce: str = NONCE, inbox: str = "inbox") -> Command:
    return ("HSET", fence, "f", number, "n", nonce, "r", "me", "i", inbox)
