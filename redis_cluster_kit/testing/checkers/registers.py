"""Linearizability of registers: is there one order of the operations that explains every result?

Wing and Gong's search with Lowe's memory, per key: for histories with few operations open at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable

from redis_cluster_kit.testing.history import RegisterOperation

from .verdict import Verdict, by


class SearchTooLargeError(Exception):
    """The history has too many open operations to be judged within the limit."""


def linearizable(
    operations: Iterable[RegisterOperation], *, initial: Hashable = None, limit: int = 1_000_000
) -> Verdict:
    """The lease register behaves as if each operation happened at one instant between its ends.

    Wing and Gong's search with Lowe's memory of (done, value), per key. `limit` bounds what it remembers.
    """
    verdict = Verdict(examined={"keys": 0, "operations": 0, "states": 0, "concurrent": 0})
    for key, rows in by(operations, lambda o: o.key).items():
        ordered = sorted(rows, key=lambda o: o.invoked_at)
        verdict.examined["keys"] += 1
        verdict.examined["operations"] += len(ordered)
        verdict.examined["concurrent"] += sum(
            later.invoked_at < earlier.completed_at for earlier, later in itertools.pairwise(ordered)
        )
        states = _search(ordered, initial, limit)
        verdict.examined["states"] += len(states)
        certain = sum(1 << i for i, o in enumerate(ordered) if o.completed_at < math.inf)
        if not any(done & certain == certain for done, _ in states):
            furthest = max(states, key=lambda state: (state[0] & certain).bit_count())
            stuck = [o for i, o in enumerate(ordered) if not furthest[0] >> i & 1]
            verdict.broken("linearizable", f"register {key}: no order explains what was seen", *stuck[:5])
    return verdict


def _search(operations: list[RegisterOperation], initial: Hashable, limit: int) -> set[tuple[int, Hashable]]:
    """Return the states reached: which operations have happened (a bit each), and the value then."""
    certain = sum(1 << i for i, o in enumerate(operations) if o.completed_at < math.inf)
    seen: set[tuple[int, Hashable]] = {(0, initial)}
    waiting: list[tuple[int, Hashable]] = [(0, initial)]
    while waiting:
        done, value = waiting.pop()
        if done & certain == certain:
            break
        for index in _possible(operations, done):
            legal, after = _apply(operations[index], value)
            state = (done | 1 << index, after)
            if legal and state not in seen:
                seen.add(state)
                waiting.append(state)
        if len(seen) > limit:
            raise SearchTooLargeError(f"more than {limit} states for {len(operations)} operations")
    return seen


def _possible(operations: list[RegisterOperation], done: int) -> list[int]:
    """Which may happen next: those that began before anything still to happen had ended."""
    possible: list[int] = []
    first_end = math.inf
    first_open = (~done & (done + 1)).bit_length() - 1
    for index in range(first_open, len(operations)):
        operation = operations[index]
        if operation.invoked_at > first_end:
            break
        if not done >> index & 1:
            possible.append(index)
            first_end = min(first_end, operation.completed_at)
    return [i for i in possible if operations[i].invoked_at <= first_end]


def _apply(operation: RegisterOperation, value: Hashable) -> tuple[bool, Hashable]:
    """Say whether the operation may happen on this value with the result seen, and the value after it."""
    unknown = operation.completed_at == math.inf
    if operation.kind == "read":
        return not unknown and operation.result == value, value
    if operation.kind == "write":
        return not unknown or value != operation.value, operation.value
    fits = operation.expected == value
    if unknown:  # one that changes nothing might as well never have happened
        return fits and value != operation.value, operation.value
    return bool(operation.result) == fits, operation.value if fits else value
