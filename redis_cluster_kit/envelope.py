"""What a message is on the wire: the field `m` of a stream entry. No I/O.

A version byte, then a MessagePack array. Within a version fields are only ever appended: a reader drops
trailing ones it does not know and takes the default of those that are not there. The arguments stay
bytes: only the rpc they are for can tell their types.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from redis_cluster_kit.codec import MAX_DEPTH, PAYLOAD_LIMIT, check_size, decode, encode
from redis_cluster_kit.errors import MalformedMessageError

__all__ = [
    "ENVELOPE_VERSION",
    "EXECUTION_HEADER",
    "Envelope",
    "UnknownVersion",
    "open_envelope",
    "seal_envelope",
]

ENVELOPE_VERSION: Final = 1

EXECUTION_HEADER: Final = "rck-execution"
"""Names the execution that a replayed message goes on with, where its id alone does not."""

_NO_ARGUMENTS = msgspec.Raw(b"\x80")
_VERSION_BYTE = bytes([ENVELOPE_VERSION])


class Envelope(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One message. The order of these fields is the stored format: append, never insert, move or remove."""

    rpc: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    """The stored name of the rpc."""
    args: msgspec.Raw = _NO_ARGUMENTS
    """A MessagePack mapping of the arguments by name, as `codec.encode` made it."""
    reply_to: str | None = None
    """Where the asker reads its replies; None: nobody waits."""
    deadline: int | None = None
    """Unix milliseconds, by the data Redis' clock, after which the asker no longer waits; None: for ever."""
    chain: tuple[str, ...] = ()
    """The entities, as `type/id`, whose turns wait for this one's reply: what a call cycle is seen by."""
    trace: dict[str, str] = {}
    """The trace context as propagators write it (`traceparent`, `tracestate`, `baggage`)."""
    headers: dict[str, str] = {}
    """What else goes with the message, by name."""


class UnknownVersion(msgspec.Struct, frozen=True):
    """A message of a later release. It is whole: leave it in place for a runner that knows `version`."""

    version: int


def seal_envelope(envelope: Envelope, *, limit: int = PAYLOAD_LIMIT, max_depth: int = MAX_DEPTH) -> bytes:
    """Return the bytes of `m`, at most `limit`; the envelope itself does not count for the depth."""
    data = _VERSION_BYTE + encode(envelope, limit=None, max_depth=max_depth + 1)
    check_size(data, limit)
    return data


def open_envelope(
    data: bytes, *, limit: int | None = None, max_depth: int = MAX_DEPTH
) -> Envelope | UnknownVersion:
    """Read `m` back; `MalformedMessageError` if it is no message of any release."""
    if not data or data[0] == 0:
        raise MalformedMessageError(detail="a message begins with its version, 1 to 255")
    if data[0] != ENVELOPE_VERSION:
        return UnknownVersion(data[0])
    check_size(data, limit)
    envelope = decode(data[1:], Envelope, max_depth=max_depth + 1)
    if not _is_mapping(envelope.args):
        raise MalformedMessageError(detail="the arguments of a message are a mapping by name")
    return envelope


def _is_mapping(data: msgspec.Raw) -> bool:
    head = memoryview(data)[0]
    return 0x80 <= head <= 0x8F or head in (0xDE, 0xDF)
