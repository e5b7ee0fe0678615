"""Values to MessagePack bytes and back, by type: strict, bounded in size and in depth. No I/O.

Whatever bytes or values come, only `MalformedMessageError` and `PayloadTooLargeError` leave here; a type
that nothing can be decoded into is the programmer's mistake and stays a TypeError. Pydantic models are
known as soon as the application itself has imported pydantic. What a message holds is said elsewhere.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, TypeVar, cast, get_type_hints, overload

import msgspec

from redis_cluster_kit.errors import MalformedMessageError, PayloadTooLargeError
from redis_cluster_kit.snowflake import Snowflake

__all__ = [
    "MAX_DEPTH",
    "PAYLOAD_LIMIT",
    "canonical",
    "check_size",
    "check_type",
    "decode",
    "decode_best_effort",
    "encode",
]

T = TypeVar("T")

PAYLOAD_LIMIT = 262_144
"""Bytes `encode` allows where nothing else is said; the default of `MailboxSettings.payload_limit`."""
MAX_DEPTH = 64
"""How deep lists and mappings may nest; the default of `MailboxSettings.max_depth`."""

# What a value or bytes of any kind can make the codec, or a user's own constructor behind it, raise.
_REFUSALS = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


def encode(value: object, *, limit: int | None = PAYLOAD_LIMIT, max_depth: int = MAX_DEPTH) -> bytes:
    """Return `value` as MessagePack of at most `limit` bytes, nested at most `max_depth` deep."""
    try:
        data = _ENCODER.encode(value)
    except _REFUSALS as error:
        raise MalformedMessageError(
            detail=f"a {type(value).__name__} cannot be sent: {_why(error)}", cause=error
        ) from error
    if limit is not None:
        check_size(data, limit)
    if len(data) > max_depth:  # nothing nests deeper than it has bytes
        _check_depth(data, max_depth)
    return data


def canonical(value: object, *, max_depth: int = MAX_DEPTH) -> bytes:
    """Return MessagePack that is the same in every process for equal values: sets and mappings are sorted."""
    try:
        data = _CANONICAL.encode(value)
    except _REFUSALS as error:
        raise MalformedMessageError(detail=_why(error), cause=error) from error
    _check_depth(data, max_depth)
    return data


@overload
def decode(
    data: bytes | msgspec.Raw, type: type[T], *, limit: int | None = None, max_depth: int = MAX_DEPTH
) -> T: ...
@overload
def decode(
    data: bytes | msgspec.Raw, type: object, *, limit: int | None = None, max_depth: int = MAX_DEPTH
) -> Any: ...
def decode(
    data: bytes | msgspec.Raw, type: object, *, limit: int | None = None, max_depth: int = MAX_DEPTH
) -> Any:
    """Return the value of `type` that `data` holds; nothing is converted, a `"1"` is no int.

    Unknown fields are dropped, missing ones take their defaults. What is stored already is not refused for
    its size unless a `limit` is named.
    """
    data = bytes(data)
    if limit is not None:
        check_size(data, limit)
    if len(data) > max_depth:
        _check_depth(data, max_depth)
    decoder = _decoder(type)
    try:
        return decoder.decode(data)
    except _REFUSALS as error:
        raise MalformedMessageError(detail=_why(error), cause=error) from error


def decode_best_effort(
    data: bytes | msgspec.Raw,
    type: type[T],
    *,
    max_depth: int = MAX_DEPTH,
    on_misfit: Callable[[str, str], None] | None = None,
) -> T:
    """Return as much of `data` as fits the struct or dataclass `type`: for state saved by another release.

    Fields that fit are loaded, new ones take their defaults, unknown ones are dropped. So does a field
    take its default whose saved value no longer fits; `on_misfit` hears its name and why. A required field
    that is absent or does not fit is a `MalformedMessageError`, as are bytes that hold no mapping.
    """
    try:
        return decode(data, type, max_depth=max_depth)
    except MalformedMessageError:
        annotations = _field_annotations(type)
        if annotations is None:
            raise
    saved = decode(data, dict[str, msgspec.Raw], max_depth=max_depth)
    for name, annotation in annotations.items():
        if name in saved and (why := _misfit(saved[name], annotation, max_depth)):
            del saved[name]
            if on_misfit is not None:
                on_misfit(name, why)
    return decode(_ENCODER.encode(saved), type, max_depth=max_depth)


def _misfit(data: msgspec.Raw, annotation: object, max_depth: int) -> str:
    try:
        decode(data, annotation, max_depth=max_depth)
    except MalformedMessageError as error:
        return error.detail
    return ""


def _field_annotations(type: type[Any]) -> dict[str, Any] | None:
    """Return what the fields are annotated with, by the name they are stored under; None if it has none."""
    if issubclass(type, msgspec.Struct):
        return {field.encode_name: field.type for field in msgspec.structs.fields(type)}
    return get_type_hints(type, include_extras=True) if is_dataclass(type) else None


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it nests too deep, or holds itself"
    return str(error) or type(error).__name__


def check_size(data: bytes, limit: int | None) -> None:
    """Refuse more than `limit` bytes; None allows any number."""
    if limit is not None and len(data) > limit:
        raise PayloadTooLargeError(size=len(data), limit=limit)


def check_type(annotation: object) -> None:
    """TypeError if a value annotated like this can never be decoded, naming the part that cannot."""
    _decoder(annotation)
    waiting: list[object] = [msgspec.inspect.type_info(annotation)]
    seen: dict[int, object] = {}  # holds what it has seen, so that no id is used twice
    while waiting:
        part = waiting.pop()
        if isinstance(part, msgspec.inspect.CustomType) and not _is_known(part.cls):
            raise TypeError(f"{part.cls.__qualname__} is no type that can be sent; use a msgspec type")
        if isinstance(part, tuple):
            waiting.extend(cast("tuple[object, ...]", part))
        elif isinstance(part, msgspec.inspect.Type | msgspec.inspect.Field) and id(part) not in seen:
            seen[id(part)] = part
            waiting.extend(msgspec.structs.astuple(part))


def _is_known(kind: type[Any]) -> bool:
    return kind in (object, Snowflake) or issubclass(kind, _pydantic_models())


# Pydantic is never imported here: a model can only come from an application that has imported it.
def _pydantic_models() -> tuple[type[Any], ...]:
    module = sys.modules.get("pydantic")
    return () if module is None else (cast("type[Any]", module.BaseModel),)


def _to_known(value: Any) -> object:
    """Turn what msgspec does not know into what it does."""
    if isinstance(value, Snowflake):
        return int(value)
    if isinstance(value, _pydantic_models()):
        # Python values, not JSON's: bytes, NaN and times survive; a secret is refused instead of masked.
        return value.model_dump(mode="python", by_alias=True, round_trip=True, warnings="error")
    raise TypeError(f"objects of type {type(value).__name__} are not supported; use a msgspec type")


def _from_known(kind: type[Any], value: Any) -> object:
    """Make a `kind` that msgspec does not know from what it read."""
    if kind is object:
        return value
    if kind is Snowflake:
        if type(value) is not int:
            raise TypeError(f"Expected `int`, got `{type(value).__name__}`")
        return Snowflake(value)
    if issubclass(kind, _pydantic_models()):
        return _validated(kind, value)
    raise TypeError(f"type {kind.__name__} is not supported; use a msgspec type")


def _validated(model: type[Any], value: object) -> object:
    from pydantic import ValidationError

    try:
        # Not strict, whatever the model says: UUIDs, decimals and dates have become text on the way.
        return model.model_validate(value, strict=False)
    except ValidationError as error:
        # Only places and reasons: its own text shows the values, which may be anybody's.
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        shown = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults)
    raise ValueError(f"not a {model.__name__}: {shown}")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_to_known)
_CANONICAL = msgspec.msgpack.Encoder(enc_hook=_to_known, order="deterministic")


@functools.lru_cache(maxsize=1024)
def _decoder(type: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(type, strict=True, dec_hook=_from_known)


# Depth. Heads of MessagePack values, by their first byte: how many bytes after it tell a length or a count,
# else the length or count itself.
_WIDTH = bytearray(256)
_SIZE = bytearray(256)
_ITEMS = bytearray(256)
"""How many values one counted item of a container holds: 1 in a list, 2 in a mapping, 0 in all else."""


def _describe_heads() -> None:
    for low in range(16):
        _SIZE[0x80 + low] = _SIZE[0x90 + low] = low
        _ITEMS[0x80 + low], _ITEMS[0x90 + low] = 2, 1
    for low in range(32):
        _SIZE[0xA0 + low] = low
    fixed = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
    extensions = {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
    for head, size in (fixed | extensions).items():
        _SIZE[head] = size
    for first, widths in {
        0xC4: (1, 2, 4),
        0xC7: (1, 2, 4),
        0xD9: (1, 2, 4),
        0xDC: (2, 4),
        0xDE: (2, 4),
    }.items():
        for place, width in enumerate(widths):
            _WIDTH[first + place] = width
    for head in (0xC7, 0xC8, 0xC9):
        _SIZE[head] = 1  # the extension's type, beside its counted bytes
    for head, items in {0xDC: 1, 0xDD: 1, 0xDE: 2, 0xDF: 2}.items():
        _ITEMS[head] = items


_describe_heads()
_CONTAINER_HEADS = bytes(head for head in range(256) if _ITEMS[head])


def _check_depth(data: bytes, max_depth: int) -> None:
    # Most messages have fewer bytes that could open a container than may nest: counted at C speed.
    if len(data) - len(data.translate(None, _CONTAINER_HEADS)) <= max_depth:
        return
    if _is_deeper(data, max_depth):
        raise MalformedMessageError(detail=f"lists and mappings nest deeper than {max_depth}")


def _is_deeper(data: bytes, max_depth: int) -> bool:
    """Walk over the heads once, without recursion; bytes that end early or make no sense are not deep."""
    position, end = 0, len(data)
    awaited: list[int] = []  # values still to come, for each container that is open
    while position < end:
        head = data[position]
        start = position + 1
        position = start + _WIDTH[head]
        size = _SIZE[head]
        if position > start:
            size += int.from_bytes(data[start:position], "big")
        if _ITEMS[head]:
            if len(awaited) == max_depth:
                return True
            if size:
                awaited.append(size * _ITEMS[head])
                continue
        else:
            position += size
        while awaited:
            awaited[-1] -= 1
            if awaited[-1]:
                break
            awaited.pop()
        if not awaited:
            break
    return False
