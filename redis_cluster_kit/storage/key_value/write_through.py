"""One key-value store in front of another: reads come from the cache, writes go to the durable store first.

Two writers may reach the cache in another order than the durable store, and one may die in between. So who
changed the cache looks at the durable store once more, and what a cache says is believed for a limited time.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Self, TypeVar

import anyio

from .contract import Change, KeyValueStore, check_key
from .typed import TypedStore

T = TypeVar("T")

logger = logging.getLogger(__name__)

_REMEMBERED = 10_000
_REPAIRED_AT_ONCE = 20
_LEFT_ALONE = 1.0


@dataclass(slots=True)
class _Trust:
    """What this process knows of the cache; shared by a store and its prefixes."""

    compared: dict[str, float] = field(default_factory=dict[str, float])
    """When both stores were seen to agree, by key; the oldest first."""
    doubtful: dict[str, float] = field(default_factory=dict[str, float])
    """Keys of which the cache may have missed something, and since when."""
    doubts_all: float | None = None
    """Since when it may have missed anything."""
    silent_until: float = 0.0
    """The cache did not answer in time: it is left alone until then."""

    def doubt(self, key: str) -> None:
        self.compared.pop(key, None)
        self.doubtful[key] = time.monotonic()
        if len(self.doubtful) > _REMEMBERED:
            self.doubtful.clear()
            self.doubt_all()

    def doubt_all(self) -> None:
        self.compared.clear()
        self.doubts_all = time.monotonic()

    def doubts(self, key: str) -> bool:
        return self.doubts_all is not None or key in self.doubtful

    def emptied(self, key: str, began: float) -> bool:
        """The cache has no value of `key`; False: a doubt came after that had begun, and stays."""
        since = self.doubtful.get(key)
        if since is not None and since >= began:
            return False
        self.doubtful.pop(key, None)
        self.compared.pop(key, None)
        return True

    def all_emptied(self, began: float) -> None:
        """The cache has no value at all; later doubts stay."""
        self.doubtful = {key: since for key, since in self.doubtful.items() if since >= began}
        if self.doubts_all is not None and self.doubts_all < began:
            self.doubts_all = None

    def agreed(self, key: str, began: float) -> None:
        """Both stores had the same value of `key`, or the cache none."""
        if not self.emptied(key, began):
            return
        self.compared[key] = began
        if len(self.compared) > _REMEMBERED:
            del self.compared[next(iter(self.compared))]


class WriteThroughStore:
    """A `KeyValueStore` that loses nothing when its cache does: what counts is in `durable`.

    A write that returned is in `durable`. A cache that fails costs time (about `cache_timeout` seconds),
    never a write or a value; what it may have missed is repaired with the next calls once it answers. A read
    may be older than the latest write of another process by `believed_for` at the most.
    """

    def __init__(
        self,
        cache: KeyValueStore,
        durable: KeyValueStore,
        *,
        believed_for: timedelta = timedelta(seconds=30),
        cache_timeout: float = 1.0,
    ) -> None:
        self._cache = cache
        self._durable = durable
        self._believed_for = believed_for.total_seconds()
        self._cache_timeout = cache_timeout
        self._trust = _Trust()
        self._prefix = ""

    def __repr__(self) -> str:
        return f"WriteThroughStore({self._cache!r}, {self._durable!r})"

    async def get(self, key: str) -> bytes | None:
        """Return the value of `key`, None if there is none."""
        whole = self._whole(key)
        await self._repair()
        done, cached = await self._cached(whole)
        if cached is not None and self._is_believed(whole):
            return cached
        looked = time.monotonic()
        value = await self._durable.get(whole)
        if done and cached == value:
            self._trust.agreed(whole, looked)
        else:
            await self._bring(whole, value)
        return value

    async def set(self, key: str, value: bytes) -> None:
        """Give `key` a value, whatever it had."""
        whole = self._whole(key)

        async def write() -> bytes:
            await self._durable.set(whole, value)
            return value

        await self._write(whole, write)

    async def remove(self, key: str) -> bool:
        """Remove `key`; return whether it was there."""
        whole, present = self._whole(key), False

        async def write() -> None:
            nonlocal present
            present = await self._durable.remove(whole)

        await self._write(whole, write)
        return present

    async def modify(self, key: str, change: Change) -> bytes | None:
        """Replace a value by `change(value)` and return it; `change` gets the durable store's value."""
        whole = self._whole(key)
        return await self._write(whole, lambda: self._durable.modify(whole, change))

    async def has(self, key: str) -> bool:
        """Return whether `key` has a value."""
        return await self.get(key) is not None

    async def is_empty(self) -> bool:
        """Return whether the durable store has no key at all."""
        return await _part(self._durable, self._prefix).is_empty()

    async def size(self) -> int:
        """Return how many keys the durable store has."""
        return await _part(self._durable, self._prefix).size()

    async def clear(self) -> None:
        """Remove every key."""
        cleared, began = False, time.monotonic()
        try:
            await _part(self._durable, self._prefix).clear()
            cleared, _ = await self._try("*", _part(self._cache, self._prefix).clear)
        finally:
            if not cleared:
                self._trust.doubt_all()
            elif not self._prefix:
                self._trust.all_emptied(began)

    def prefix(self, text: str) -> Self:
        """Return the part of this store whose keys begin with `text`; its keys are named without it."""
        part = copy.copy(self)
        part._prefix = check_key(self._prefix + text)  # noqa: SLF001 - of the same class
        return part

    def for_schema(self, type: type[T]) -> TypedStore[T]:
        """Return the same store with values of `type` instead of bytes."""
        return TypedStore(self, type)

    # Writing

    async def _write(self, key: str, write: Callable[[], Awaitable[bytes | None]]) -> bytes | None:
        """Durable first; after a failure nobody knows what it holds, so the cache is not believed."""
        await self._repair()
        try:
            value = await write()
        except BaseException:
            self._trust.doubt(key)
            raise
        await self._bring(key, value)
        return value

    async def _bring(self, key: str, value: bytes | None) -> None:
        """Bring the cache to `value`, which the durable store had just now; doubt it if that fails.

        Whoever changed the cache last has looked at the durable store after that: if somebody wrote
        meanwhile, the cache is left empty for the next reader to fill. An empty cache is never wrong.
        """
        looked, done = time.monotonic(), False
        try:
            if value is None:
                done, _ = await self._remove_cached(key)
                return
            done, _ = await self._try(key, lambda: self._cache.set(key, value))
            if done and not await self._still(key, value):
                done, _ = await self._remove_cached(key)
        finally:
            if done:
                self._trust.agreed(key, looked)
            else:
                self._trust.doubt(key)

    async def _still(self, key: str, value: bytes) -> bool:
        try:
            return await self._durable.get(key) == value
        except Exception as error:  # noqa: BLE001 - the write is done: its second look must not fail it
            logger.warning("key %r could not be compared with its cache: %r", key, error)
            return False

    # The cache

    async def _cached(self, key: str) -> tuple[bool, bytes | None]:
        if self._trust.doubts(key):
            return False, None
        return await self._try(key, lambda: self._cache.get(key))

    def _is_believed(self, key: str) -> bool:
        compared = self._trust.compared.get(key)
        return compared is not None and time.monotonic() - compared < self._believed_for

    async def _repair(self) -> None:
        """Take out of the cache what it may have missed; after one failure it is left for now."""
        trust = self._trust
        if trust.doubts_all is not None:
            began = time.monotonic()
            if not (await self._try("*", self._cache.clear))[0]:
                return
            trust.all_emptied(began)
        for key in list(trust.doubtful)[:_REPAIRED_AT_ONCE]:
            began = time.monotonic()
            if not (await self._remove_cached(key))[0]:
                return
            trust.emptied(key, began)

    async def _remove_cached(self, key: str) -> tuple[bool, bool | None]:
        return await self._try(key, lambda: self._cache.remove(key))

    async def _try(self, key: str, do: Callable[[], Awaitable[T]]) -> tuple[bool, T | None]:
        """Ask the cache; whatever it raises, and silence too, is no failure of this store."""
        if time.monotonic() < self._trust.silent_until:
            return False, None
        try:
            with anyio.fail_after(self._cache_timeout):
                return True, await do()
        except Exception as error:  # noqa: BLE001 - it may be anybody's store, and what it holds is a copy
            logger.warning("the cache failed for key %r, the durable store goes on: %r", key, error)
            if isinstance(error, TimeoutError):
                self._trust.silent_until = time.monotonic() + _LEFT_ALONE
            return False, None

    def _whole(self, key: str) -> str:
        check_key(key)
        return check_key(self._prefix + key) if self._prefix else key


def _part(store: KeyValueStore, prefix: str) -> KeyValueStore:
    return store.prefix(prefix) if prefix else store
