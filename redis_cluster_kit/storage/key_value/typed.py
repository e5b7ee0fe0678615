"""A key-value store whose values have a type, encoded as MessagePack. It holds nothing itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from redis_cluster_kit.codec import check_type, decode, decode_best_effort, encode
from redis_cluster_kit.errors import MalformedMessageError

if TYPE_CHECKING:
    from .contract import KeyValueStore

T = TypeVar("T")

logger = logging.getLogger(__name__)


class TypedStore(Generic[T]):
    """What `store.for_schema(type)` returns.

    Values that another release wrote are read as far as they fit: fields that fit are loaded, new ones take
    their defaults, unknown ones are dropped. A value that cannot be read at all is a `MalformedMessageError`:
    it stays as it is, and `modify` does not overwrite it.
    """

    def __init__(self, store: KeyValueStore, type: type[T]) -> None:
        check_type(type)
        self._store = store
        self._type = type

    async def get(self, key: str) -> T | None:
        """Return the value of `key`, None if there is none."""
        return self._decoded(key, await self._store.get(key))

    async def set(self, key: str, value: T) -> None:
        """Give `key` a value, whatever it had."""
        await self._store.set(key, self._encoded(value))

    async def remove(self, key: str) -> bool:
        """Remove `key`; return whether it was there."""
        return await self._store.remove(key)

    async def has(self, key: str) -> bool:
        """Return whether `key` has a value, readable or not."""
        return await self._store.has(key)

    async def is_empty(self) -> bool:
        """Return whether there is no key at all."""
        return await self._store.is_empty()

    async def size(self) -> int:
        """Return how many keys there are."""
        return await self._store.size()

    async def clear(self) -> None:
        """Remove every key."""
        await self._store.clear()

    async def modify(self, key: str, change: Callable[[T | None], T | None]) -> T | None:
        """Replace a value by `change(value)` and return it; see `KeyValueStore.modify`.

        `change` gets a copy of its own: it may change and return it.
        """

        def on_bytes(data: bytes | None) -> bytes | None:
            value = change(self._decoded(key, data))
            return None if value is None else self._encoded(value)

        return self._decoded(key, await self._store.modify(key, on_bytes))

    def prefix(self, text: str) -> TypedStore[T]:
        """Return the part of this store whose keys begin with `text`."""
        return TypedStore(self._store.prefix(text), self._type)

    def _read(self, data: bytes, on_misfit: Callable[[str, str], None]) -> T:
        wanted: Any = self._type  # list[int] is no class, and has no fields
        if isinstance(wanted, type):
            return cast("T", decode_best_effort(data, wanted, on_misfit=on_misfit))
        return cast("T", decode(data, wanted))

    def _encoded(self, value: T) -> bytes:
        data = encode(value, limit=None)
        decode(data, self._type)  # a value of another type is refused here, not found by a reader
        return data

    def _decoded(self, key: str, data: bytes | None) -> T | None:
        if data is None:
            return None

        def tell(field: str, why: str) -> None:
            logger.warning("field %s of key %r takes its default: %s", field, key, why)

        try:
            return self._read(data, tell)
        except MalformedMessageError as error:
            raise MalformedMessageError(
                detail=f"the value of key {key!r} cannot be read as {self._type}: {error.detail}", cause=error
            ) from error
