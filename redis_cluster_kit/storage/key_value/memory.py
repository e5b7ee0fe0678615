"""A key-value store in this process' memory: for tests, and as the cache of a write-through."""

from __future__ import annotations

from .base import BaseStore
from .contract import VALUE_LIMIT


class MemoryStore(BaseStore):
    """Values in a dictionary; gone with the process. Use it on one event loop."""

    def __init__(self, *, value_limit: int = VALUE_LIMIT) -> None:
        super().__init__(value_limit=value_limit)
        self._values: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._values)} keys)"

    # Nothing below awaits anything, so no other task gets in between.

    async def _read(self, key: str) -> bytes | None:
        return self._values.get(key)

    async def _write(self, key: str, value: bytes) -> None:
        self._values[key] = value

    async def _delete(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    async def _swap(self, key: str, before: bytes | None, after: bytes | None) -> bool:
        if self._values.get(key) != before:
            return False
        if after is None:
            self._values.pop(key, None)
        else:
            self._values[key] = after
        return True

    async def _count(self, prefix: str) -> int:
        return sum(key.startswith(prefix) for key in self._values)

    async def _wipe(self, prefix: str) -> None:
        for key in [key for key in self._values if key.startswith(prefix)]:
            del self._values[key]
