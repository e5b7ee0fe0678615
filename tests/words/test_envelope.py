"""The envelope: its bytes are a stored format, and both older and newer ones are read as promised."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_cluster_kit.codec import encode
from redis_cluster_kit.envelope import (
    ENVELOPE_VERSION,
    Envelope,
    UnknownVersion,
    open_envelope,
    seal_envelope,
)
from redis_cluster_kit.errors import MalformedMessageError, PayloadTooLargeError

FULL = Envelope(
    rpc="deposit",
    args=msgspec.Raw(encode({"amount": 10})),
    reply_to="0123456789ab",
    deadline=1_800_000_000_123,
    chain=("account/alice", "bank/main"),
    trace={"traceparent": "00-11-22-01"},
    headers={"tenant": "shop"},
)
GOLDEN_FULL = bytes.fromhex(
    "01"  # version
    "97"  # seven fields
    "a76465706f736974"  # rpc
    "81a6616d6f756e740a"  # args: {"amount": 10}
    "ac303132333435363738396162"  # reply-to
    "cf000001a3185c507b"  # deadline
    "92ad6163636f756e742f616c696365a962616e6b2f6d61696e"  # chain
    "81ab7472616365706172656e74ab30302d31312d32322d3031"  # trace
    "81a674656e616e74a473686f70"  # headers
)
GOLDEN_BARE = bytes.fromhex("0197a470696e6780c0c0908080")

texts = st.text(max_size=12)
mappings = st.dictionaries(texts, texts, max_size=3)
arguments = st.dictionaries(texts, st.integers(0, 2**40) | st.lists(texts, max_size=3), max_size=4)
envelopes = st.builds(
    Envelope,
    rpc=st.text("abcXYZ019_.-", min_size=1, max_size=64),
    args=arguments.map(lambda value: msgspec.Raw(encode(value))),
    reply_to=st.none() | texts,
    deadline=st.none() | st.integers(0, 2**45),
    chain=st.lists(texts, max_size=3).map(tuple),
    trace=mappings,
    headers=mappings,
)


def same(one: object, other: Envelope) -> bool:
    assert isinstance(one, Envelope)
    bare = msgspec.Raw(b"")
    without_args = [msgspec.structs.replace(envelope, args=bare) for envelope in (one, other)]
    return (
        bytes(one.args) == bytes(other.args)
        and msgspec.structs.astuple(without_args[0])[2:] == msgspec.structs.astuple(without_args[1])[2:]
        and one.rpc == other.rpc
    )


def fields_of(data: bytes) -> list[object]:
    decoded = msgspec.msgpack.decode(data[1:])
    assert isinstance(decoded, list)
    return decoded


def test_golden_bytes() -> None:
    assert seal_envelope(FULL) == GOLDEN_FULL
    assert seal_envelope(Envelope(rpc="ping")) == GOLDEN_BARE
    assert same(open_envelope(GOLDEN_FULL), FULL)
    assert same(open_envelope(GOLDEN_BARE), Envelope(rpc="ping"))


def test_the_order_of_the_fields_is_the_format() -> None:
    assert Envelope.__struct_fields__[:7] == (
        "rpc",
        "args",
        "reply_to",
        "deadline",
        "chain",
        "trace",
        "headers",
    )


@given(envelopes)
def test_round_trip(envelope: Envelope) -> None:
    data = seal_envelope(envelope)
    assert data[0] == ENVELOPE_VERSION
    assert same(open_envelope(data), envelope)


@given(envelopes, st.lists(st.none() | st.integers(0, 9) | texts | mappings, min_size=1, max_size=3))
def test_unknown_trailing_fields_are_ignored(envelope: Envelope, later: list[object]) -> None:
    data = seal_envelope(envelope)
    longer = data[:1] + encode([*fields_of(data), *later])
    assert same(open_envelope(longer), envelope)


@given(envelopes, st.integers(1, 7))
def test_fields_that_are_not_there_take_their_defaults(envelope: Envelope, kept: int) -> None:
    data = seal_envelope(envelope)
    opened = open_envelope(data[:1] + encode(fields_of(data)[:kept]))
    assert isinstance(opened, Envelope)
    names = Envelope.__struct_fields__
    shortened = {name: getattr(envelope, name) for name in names[:kept]}
    assert same(opened, Envelope(**shortened))


@given(st.integers(2, 255), st.binary(max_size=30))
def test_another_version_is_told_apart_from_malformed(version: int, rest: bytes) -> None:
    assert open_envelope(bytes([version]) + rest) == UnknownVersion(version)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x01",
        b"\x01\x90",
        b"\x01\x91\x01",
        b"\x01\x91\xa0",
        b"\x01\x91\xd9\x41" + b"a" * 65,
        b"\x01\x92\xa1a\x90",
        b"\x01\x92\xa1a\x05",
        b"\x01\x80",
        GOLDEN_FULL + b"\x00",
        GOLDEN_FULL[:-1],
    ],
    ids=lambda data: data[:6].hex() or "empty",
)
def test_what_is_no_message_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        open_envelope(data)


@given(st.binary(max_size=60).map(lambda rest: b"\x01" + rest) | st.binary(max_size=60))
def test_any_bytes_raise_only_our_errors(data: bytes) -> None:
    with contextlib.suppress(MalformedMessageError):
        open_envelope(data)


def test_the_size_limit_counts_every_byte() -> None:
    size = len(GOLDEN_FULL)
    assert seal_envelope(FULL, limit=size) == GOLDEN_FULL
    assert same(open_envelope(GOLDEN_FULL, limit=size), FULL)
    with pytest.raises(PayloadTooLargeError, match=f"{size} bytes are above the limit of {size - 1}"):
        seal_envelope(FULL, limit=size - 1)
    with pytest.raises(PayloadTooLargeError):
        open_envelope(GOLDEN_FULL, limit=size - 1)


def test_the_depth_limit_is_that_of_the_arguments() -> None:
    deepest = {"value": [[[1]]]}
    deep = Envelope(rpc="deep", args=msgspec.Raw(encode(deepest, max_depth=4)))
    data = seal_envelope(deep, max_depth=4)
    assert same(open_envelope(data, max_depth=4), deep)
    with pytest.raises(MalformedMessageError):
        seal_envelope(deep, max_depth=3)
    with pytest.raises(MalformedMessageError):
        open_envelope(data, max_depth=3)
    with pytest.raises(MalformedMessageError, match="deeper"):
        open_envelope(b"\x01\x92\xa1a" + b"\x81\xa1a" * 90_000)
