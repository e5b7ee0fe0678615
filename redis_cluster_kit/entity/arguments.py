"""The arguments of one rpc: bound by name, encoded and checked at the sender, decoded at the owner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from redis_cluster_kit.codec import decode, encode

_ABSENT = msgspec.UNSET


class Arguments:
    """Knows the parameters of one rpc, without `self`."""

    def __init__(self, label: str, parameters: Mapping[str, Any], required: frozenset[str]) -> None:
        self._label = label
        self._names = tuple(parameters)
        self._known = frozenset(parameters)
        self._required = required
        fields = [
            (name, annotation) if name in required else (name, annotation, _ABSENT)
            for name, annotation in parameters.items()
        ]
        self._shape: Any = msgspec.defstruct("Arguments", fields, kw_only=True)

    def encode(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, limit: int, max_depth: int
    ) -> bytes:
        """Return the arguments by name, as MessagePack.

        TypeError if there are too many, too few or unknown ones; `MalformedMessageError` if a value does not
        fit its annotation, `PayloadTooLargeError` above the limit.
        """
        values = self._bind(args, kwargs)
        data = encode(values, limit=limit, max_depth=max_depth)
        decode(data, self._shape, max_depth=max_depth)
        return data

    def decode(self, data: bytes | msgspec.Raw, *, max_depth: int) -> dict[str, Any]:
        """Return what to call the handler with: unknown arguments are dropped, absent ones left out."""
        shape = decode(data, self._shape, max_depth=max_depth)
        found: dict[str, Any] = {}
        for name in self._names:
            value = getattr(shape, name)
            if value is not _ABSENT:
                found[name] = value
        return found

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > len(self._names):
            raise TypeError(f"{self._label} takes {len(self._names)} arguments, got {len(args)}")
        values = dict(zip(self._names, args, strict=False))
        if kwargs:
            for name, value in kwargs.items():
                if name not in self._known:
                    raise TypeError(f"{self._label} has no argument {name!r}")
                if name in values:
                    raise TypeError(f"{self._label} got two values for argument {name!r}")
                values[name] = value
        if len(values) < len(self._names):
            missing = sorted(self._required - values.keys())
            if missing:
                raise TypeError(f"{self._label} needs the argument {missing[0]!r}")
        return values
