"""Which part of a message's way a sampled function, or a command of Redis, belongs to.

A stack belongs to the stage of its innermost frame that one names: what the codec does for the envelope is
the envelope's, and what asyncio does for a connection is the connection's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from benchmarks.flames import Stack

WAITING = ("Condition.wait (", "EpollSelector.select (", "ThreadedChildWatcher._do_waitpid (")
"""Threads in these wait; the few microseconds before they sleep are left out, too."""

_KIT = "redis_cluster_kit/"
_SHARED = {
    "connection: write, read, parse": (
        f"{_KIT}redis_access/connection.py",
        f"{_KIT}redis_access/lanes.py",
        "asyncio/selector_events.py",
    ),
    "batches: gather, pack, hand out": (
        f"{_KIT}redis_access/batches.py",
        f"{_KIT}redis_access/scripts.py",
    ),
}
_LOOP = {"event loop and tasks": ("asyncio/", "anyio/", "selectors.py", "contextlib.py", "<string>")}

SENDER: Mapping[str, tuple[str, ...]] = {
    "the caller's own code": ("benchmarks/",),
    "envelope: check, encode": (
        f"{_KIT}codec.py",
        f"{_KIT}envelope.py",
        f"{_KIT}entity/arguments.py",
        f"{_KIT}telemetry.py",
    ),
    "call: proxy, id, receipt": (
        f"{_KIT}calling/",
        f"{_KIT}delivery/",
        f"{_KIT}redis_access/keyspace.py",
        _KIT,
    ),
    **_SHARED,
    **_LOOP,
}
OWNER: Mapping[str, tuple[str, ...]] = {
    "handler": ("benchmarks/",),
    "envelope and state: decode, encode": (
        f"{_KIT}codec.py",
        f"{_KIT}envelope.py",
        f"{_KIT}entity/arguments.py",
        f"{_KIT}runtime/state.py",
    ),
    "turn: begin, run, end": (f"{_KIT}runtime/", f"{_KIT}entity/", _KIT),
    "commit: values, outcome": (f"{_KIT}runtime/commit.py", f"{_KIT}delivery/"),
    **_SHARED,
    "leases, timers, database": (f"{_KIT}ownership/", f"{_KIT}storage/", "sqlalchemy/", "sqlite3/"),
    **_LOOP,
}
REST = "others"


def working(stacks: Counter[Stack]) -> Counter[Stack]:
    """Leave out the stacks of threads that wait, and whatever is around the loop's own work."""
    kept: Counter[Stack] = Counter()
    for stack, count in stacks.items():
        if not stack[-1].startswith(WAITING):
            kept[_inside_the_loop(stack)] += count
    return kept


def _inside_the_loop(stack: Stack) -> Stack:
    for place, frame in enumerate(stack):
        if frame.startswith("BaseEventLoop._run_once "):
            return stack[place:]
    return stack


def shares(stacks: Counter[Stack], stages: Mapping[str, tuple[str, ...]]) -> dict[str, float]:
    """Return each stage's share of the samples, in the order of the stages."""
    found: Counter[str] = Counter()
    for stack, count in stacks.items():
        found[stage_of(stack, stages)] += count
    whole = sum(found.values())
    return {title: found[title] / whole for title in (*stages, REST) if found[title]}


def stage_of(stack: Stack, stages: Mapping[str, tuple[str, ...]]) -> str:
    """Return the stage of the innermost frame that belongs to one; a longer path is told before a shorter."""
    for frame in reversed(stack):
        file = frame.rpartition("(")[2].rstrip(")")
        matching = [
            (len(prefix), title)
            for title, prefixes in stages.items()
            for prefix in prefixes
            if file.startswith(prefix)
        ]
        if matching:
            return max(matching)[1]
    return REST


_HEADS = ("eval", "evalsha")
_KINDS = {
    "streams: XADD, XREADGROUP, XACK, XDEL": ("x",),
    "hashes: state and markers": ("h",),
}
_OTHERS = "other commands of the scripts"


def commands(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of wall time each kind of command took, and `scripts` for all in all."""
    took = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
    found = dict.fromkeys((*_KINDS, _OTHERS), 0.0)
    for name, seconds in took.items():
        if name not in _HEADS:
            kind = next((kind for kind, first in _KINDS.items() if name.startswith(first)), _OTHERS)
            found[kind] += seconds
    return found | {"scripts": sum(took.get(name, 0.0) for name in _HEADS)}


def of_redis(wall: Mapping[str, float], stretch: float, cpu: float) -> dict[str, float]:
    """Return the CPU seconds of each stage of the server.

    `wall` from `commands`; `stretch`: how much longer than its CPU time it was ready to run; `cpu`: all it
    used.
    """
    inside = {kind: seconds / stretch for kind, seconds in wall.items() if kind != "scripts"}
    scripts = min(wall["scripts"] / stretch, cpu)
    return {
        **inside,
        "Lua: the scripts' own work, calls": max(0.0, scripts - sum(inside.values())),
        "connections: read, parse, answer": cpu - scripts,
    }
