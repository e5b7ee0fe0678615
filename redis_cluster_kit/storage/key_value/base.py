"""What the stores that hold values themselves share: checks, prefixes, and `modify` by compare-and-set.

A store of one technology fills in six small operations on whole keys; nothing here knows where values are.
"""

from __future__ import annotations

import copy
import random
from abc import ABC, abstractmethod
from typing import Self, TypeVar

import anyio

from .contract import VALUE_LIMIT, Change, check_key, check_value
from .typed import TypedStore

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05


class BaseStore(ABC):
    """A `KeyValueStore` on top of six operations."""

    def __init__(self, *, value_limit: int = VALUE_LIMIT) -> None:
        self._limit = value_limit
        self._prefix = ""

    async def get(self, key: str) -> bytes | None:
        """Return the value of `key`, None if there is none."""
        return await self._read(self._whole(key))

    async def set(self, key: str, value: bytes) -> None:
        """Give `key` a value, whatever it had."""
        whole = self._whole(key)
        await self._write(whole, check_value(whole, value, self._limit))

    async def remove(self, key: str) -> bool:
        """Remove `key`; return whether it was there."""
        return await self._delete(self._whole(key))

    async def has(self, key: str) -> bool:
        """Return whether `key` has a value."""
        return await self.get(key) is not None

    async def is_empty(self) -> bool:
        """Return whether there is no key at all."""
        return await self.size() == 0

    async def size(self) -> int:
        """Return how many keys there are."""
        return await self._count(self._prefix)

    async def clear(self) -> None:
        """Remove every key."""
        await self._wipe(self._prefix)

    async def modify(self, key: str, change: Change) -> bytes | None:
        """Replace a value by `change(value)` and return it; `change` is called again if it was overtaken."""
        whole, pause = self._whole(key), _FIRST_PAUSE
        while True:
            before = await self._read(whole)
            after = change(before)
            if after is not None:
                check_value(whole, after, self._limit)
            if after == before or await self._swap(whole, before, after):
                return after
            await anyio.sleep(random.uniform(0, pause))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def prefix(self, text: str) -> Self:
        """Return the part of this store whose keys begin with `text`; its keys are named without it."""
        part = copy.copy(self)  # what holds the values is shared
        part._prefix = check_key(self._prefix + text)  # noqa: SLF001 - of the same class
        return part

    def for_schema(self, type: type[T]) -> TypedStore[T]:
        """Return the same store with values of `type` instead of bytes."""
        return TypedStore(self, type)

    def _whole(self, key: str) -> str:
        check_key(key)
        return check_key(self._prefix + key) if self._prefix else key

    # What a technology fills in; keys are whole, values checked

    @abstractmethod
    async def _read(self, key: str) -> bytes | None: ...

    @abstractmethod
    async def _write(self, key: str, value: bytes) -> None: ...

    @abstractmethod
    async def _delete(self, key: str) -> bool: ...

    @abstractmethod
    async def _swap(self, key: str, before: bytes | None, after: bytes | None) -> bool:
        """Make `after` the value if it is still `before`; None stands for no value."""

    @abstractmethod
    async def _count(self, prefix: str) -> int: ...

    @abstractmethod
    async def _wipe(self, prefix: str) -> None: ...
