"""Python's garbage collector while a process hosts: it looks less often, as there is more to look through.

With its defaults it runs after every 700 objects, which a few messages make; with 10,000 entities in memory
a good part of a runner's time went there. Nothing is frozen and nothing switched off: what is garbage goes
later.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

_YOUNG, _OLD = 20, 10
_raised: list[int] = []
"""What each cluster that hosts in this process has asked for."""
_before = (0, 0, 0)


@contextmanager
def rarer_collections(threshold: int) -> Generator[None]:
    """Look after `threshold` objects, until the last cluster that asked for it has left.

    A collector that is switched off, or looks less often anyway, is left alone; so is one that somebody else
    has set meanwhile. 0 asks for nothing.
    """
    global _before  # noqa: PLW0603 - a process has one collector
    present = gc.get_threshold()
    if not _raised and not 0 < present[0] < threshold:
        yield
        return
    if not _raised:
        _before = present
    _raised.append(threshold)
    _set()
    try:
        yield
    finally:
        was_ours = gc.get_threshold()[:2] == (max(_raised), _YOUNG)
        _raised.remove(threshold)
        if was_ours and _raised:
            _set()
        elif was_ours:
            gc.set_threshold(*_before)


def _set() -> None:
    gc.set_threshold(max(_raised), _YOUNG, _OLD)
