"""All randomness of a fault run from one number, which is told when the run fails.

`RCK_SEED=123` repeats a run as far as the machine allows: what is drawn is the same, scheduling is not.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True)
class Seeds:
    """All randomness of a run from one number, told when the run fails: `with Seeds.from_env() as seeds:`."""

    value: int
    variable: str = "RCK_SEED"

    @classmethod
    def from_env(cls, variable: str = "RCK_SEED") -> Seeds:
        """Take the seed from the environment, or a fresh one."""
        text = os.environ.get(variable, "")
        if not text:
            return cls(secrets.randbelow(2**32), variable)
        return cls(parse_seed(text, variable), variable)

    @property
    def hint(self) -> str:
        """How to repeat the run."""
        return f"to repeat this run: {self.variable}={self.value}"

    def number(self, *names: object) -> int:
        """Return a number of its own for these names: one more draw elsewhere does not change it."""
        text = ":".join(map(str, (self.value, *names)))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest())

    def random(self, *names: object) -> random.Random:
        """Return a generator of its own for these names."""
        return random.Random(self.number(*names))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(self.hint)


def parse_seed(text: str, where: str) -> int:
    """Read a seed that somebody typed."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"expected a whole number in {where}, got {text!r}")
    return int(text)
