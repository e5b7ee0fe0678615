"""What every key-value store can do, and what it takes for a key and a value. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from redis_cluster_kit.errors import PayloadTooLargeError

if TYPE_CHECKING:
    from .typed import TypedStore

T = TypeVar("T")

Change = Callable[[bytes | None], bytes | None]
"""From the present value to the next one; None: no value. It may be called again: no side effects."""

VALUE_LIMIT = 1_048_576
"""Bytes of one value where nothing else is said."""

_LONGEST_KEY = 512


class KeyValueStore(Protocol):
    """Bytes by key, where a key is text of 1 to 512 UTF-8 bytes without control characters.

    What a store cannot do is a `PersistenceFailedError`; after one whose `execution` is `UNKNOWN` a write may
    have happened. A value above the limit is a `PayloadTooLargeError`, and nothing was written.
    """

    async def get(self, key: str) -> bytes | None:
        """Return the value of `key`, None if there is none."""
        ...

    async def set(self, key: str, value: bytes) -> None:
        """Give `key` a value, whatever it had."""
        ...

    async def remove(self, key: str) -> bool:
        """Remove `key`; return whether it was there."""
        ...

    async def has(self, key: str) -> bool:
        """Return whether `key` has a value."""
        ...

    async def is_empty(self) -> bool:
        """Return whether there is no key at all."""
        ...

    async def size(self) -> int:
        """Return how many keys there are. It may look at every key."""
        ...

    async def clear(self) -> None:
        """Remove every key. Writers at the same time may leave some."""
        ...

    async def modify(self, key: str, change: Change) -> bytes | None:
        """Replace a value by `change(value)` and return it: nobody's change in between is lost, on any pod.

        `change` gets None where there is no value, and may return None to remove it. It is a plain function,
        called again whenever somebody else was faster.
        """
        ...

    def prefix(self, text: str) -> Self:
        """Return the part of this store whose keys begin with `text`; its keys are named without it."""
        ...

    def for_schema(self, type: type[T]) -> TypedStore[T]:
        """Return the same store with values of `type` instead of bytes."""
        ...


def check_key(key: object) -> str:
    """Return `key` if it may be one."""
    if not isinstance(key, str):
        raise TypeError(f"a key must be text, got {type(key).__name__}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"a key must be valid Unicode, got {key[:80]!a}") from error
    if not 1 <= size <= _LONGEST_KEY:
        raise ValueError(f"a key has 1 to {_LONGEST_KEY} UTF-8 bytes with its prefix, got {size}")
    if any(character < " " or "\x7f" <= character <= "\x9f" for character in key):
        raise ValueError(f"a key has no control characters, got {key[:80]!a}")
    return key


def check_value(key: str, value: object, limit: int) -> bytes:
    """Return `value` if it may be stored."""
    if not isinstance(value, bytes):
        raise TypeError(
            f"a value must be bytes, got {type(value).__name__}; encode it, or use store.for_schema(type)"
        )
    if len(value) > limit:
        raise PayloadTooLargeError(
            size=len(value), limit=limit, detail=f"the value of key {key!r}; the store's value_limit"
        )
    return value
