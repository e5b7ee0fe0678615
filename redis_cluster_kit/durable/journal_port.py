"""What a run of an execution asks of its journal. `storage` keeps one in the database, tests in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from redis_cluster_kit.storage import Entry, Resolution

__all__ = ["DeferredPort", "JournalPort"]


class JournalPort(Protocol):
    """The journal of one execution; it has its own timeouts, and repeats what is safe to repeat."""

    async def open(self) -> Sequence[Entry]: ...
    async def record(self, entry: Entry, /) -> Entry: ...


class DeferredPort(Protocol):
    """The deferreds of one execution."""

    def token(self, name: str, /) -> str: ...
    async def read(self, name: str, /) -> Resolution | None: ...
