"""Pauses between attempts that grow up to a bound, however many attempts there were. Pure but for jitter."""

from __future__ import annotations

import math
import random


def pause_after(failures: int, *, base: float, factor: float, longest: float) -> float:
    """Return the seconds to wait after so many failures, jittered: half to all of the exponential pause."""
    # In logarithms: the power itself leaves the range of floats after some hundred failures.
    growth = (failures - 1) * math.log(factor)
    exact = longest if growth >= math.log(longest / base) else base * math.exp(growth)
    return min(longest, exact) * random.uniform(0.5, 1.0)
