"""The codec: strict, bounded, and never raising anything but the kit's errors."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_cluster_kit.codec import MAX_DEPTH, PAYLOAD_LIMIT, check_type, decode, decode_best_effort, encode
from redis_cluster_kit.errors import MalformedMessageError, PayloadTooLargeError
from redis_cluster_kit.settings import MailboxSettings
from redis_cluster_kit.snowflake import Snowflake


class Item(msgspec.Struct):
    name: str
    count: int = 0
    tags: list[str] = []
    parent: Item | None = None


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    id: UUID
    due: datetime
    price: Decimal
    note: bytes = b""
    wait: timedelta = timedelta(0)
    share: float = 0.0
    kinds: set[int] = set()
    alias: int = pydantic.Field(default=0, alias="theAlias")


class Locked(pydantic.BaseModel):
    secret: pydantic.SecretStr


@dataclasses.dataclass
class Progress:
    last_id: str = ""
    seen: int = 0


integers = st.integers(-(2**63), 2**64 - 1)
scalars = st.none() | st.booleans() | integers | st.floats(allow_nan=False) | st.text() | st.binary()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=40,
)
TYPES: list[Any] = [
    object,
    int,
    str,
    bytes,
    Item,
    Order,
    Progress,
    Snowflake,
    datetime,
    UUID,
    Decimal,
    msgspec.Raw,
    list[Item],
    tuple[int, str],
    set[int],
    dict[str, Any],
    dict[int, Order],
    Item | None,
]


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\xc0"


def depth_of(value: object) -> int:
    if isinstance(value, list):
        return 1 + max((depth_of(item) for item in value), default=0)
    if isinstance(value, dict):
        return 1 + max((depth_of(item) for item in value.values()), default=0)
    return 0


def test_defaults_are_those_of_the_settings() -> None:
    assert (MailboxSettings().payload_limit, MailboxSettings().max_depth) == (PAYLOAD_LIMIT, MAX_DEPTH)


@given(values)
def test_round_trip(value: object) -> None:
    assert decode(encode(value), object) == value


@given(st.builds(Item, st.text(), integers, st.lists(st.text(), max_size=3), st.none()))
def test_structs_round_trip(item: Item) -> None:
    child = Item("child", parent=item)
    assert decode(encode([child]), list[Item]) == [child]


@pytest.mark.parametrize(
    ("value", "type"),
    [
        ("1", int),
        (1, str),
        (1.5, int),
        (True, int),
        (None, int),
        ({"name": 1}, Item),
        ({}, Item),
        ([1], Item),
    ],
)
def test_nothing_is_converted(value: object, type: Any) -> None:
    with pytest.raises(MalformedMessageError) as caught:
        decode(encode(value), type)
    assert caught.value.detail
    assert not caught.value.is_retryable


def test_an_error_says_where() -> None:
    with pytest.raises(MalformedMessageError, match=r"Expected `int`, got `str` - at `\$\[1\]\.count`"):
        decode(encode([{"name": "a"}, {"name": "b", "count": "2"}]), list[Item])


class Unknowable:
    pass


@pytest.mark.parametrize(
    "value",
    [
        Unknowable(),
        [Unknowable()],
        2**64,
        -(2**63) - 1,
        "\ud800",
        {Item("a").name: len},
        Locked(secret=pydantic.SecretStr("x")),
    ],
    ids=["class", "inside", "large", "small", "surrogate", "function", "secret"],
)
def test_what_cannot_be_sent_is_malformed(value: object) -> None:
    with pytest.raises(MalformedMessageError, match="cannot be sent"):
        encode(value)


def test_a_value_that_holds_itself_is_malformed() -> None:
    ring: list[object] = []
    ring.append(ring)
    with pytest.raises(MalformedMessageError, match="nests too deep"):
        encode(ring)


def test_a_type_that_cannot_be_decoded_is_the_programmers_mistake() -> None:
    with pytest.raises(TypeError):
        decode(b"\xc0", dict[str, int] | dict[str, str])


class Holder(msgspec.Struct):
    inner: list[Holder]
    odd: dict[str, Unknowable]


@pytest.mark.parametrize("type", TYPES)
def test_types_that_can_be_sent_pass_the_check(type: Any) -> None:
    check_type(type)


@pytest.mark.parametrize(
    "type", [Unknowable, list[Unknowable], Holder, tuple[int, Unknowable | None], complex]
)
def test_a_type_that_can_never_be_decoded_is_named(type: Any) -> None:
    with pytest.raises(TypeError, match=r"(Unknowable|complex) is no type that can be sent"):
        check_type(type)


def test_size_limit() -> None:
    assert len(encode(b"x" * 95, limit=97)) == 97
    with pytest.raises(PayloadTooLargeError, match="98 bytes are above the limit of 97"):
        encode(b"x" * 96, limit=97)
    with pytest.raises(PayloadTooLargeError):
        encode(b"x" * PAYLOAD_LIMIT)
    large = encode(b"x" * PAYLOAD_LIMIT, limit=None)
    assert len(decode(large, bytes)) == PAYLOAD_LIMIT
    with pytest.raises(PayloadTooLargeError):
        decode(large, bytes, limit=PAYLOAD_LIMIT)


@given(values, st.integers(0, 6))
def test_the_depth_limit_is_exact(value: object, max_depth: int) -> None:
    whole = encode(value)
    if depth_of(value) <= max_depth:
        assert encode(value, max_depth=max_depth) == whole
        assert decode(whole, object, max_depth=max_depth) == value
        return
    with pytest.raises(MalformedMessageError, match=f"nest deeper than {max_depth}"):
        encode(value, max_depth=max_depth)
    with pytest.raises(MalformedMessageError, match=f"nest deeper than {max_depth}"):
        decode(whole, object, max_depth=max_depth)


EVERY_HEAD = [
    *(b"\x05", b"\xe0", b"\xc0", b"\xc2", b"\xc3", b"\xa2ab"),
    *(b"\xca" + bytes(4), b"\xcb" + bytes(8), b"\xcc\x91", b"\xcd\x91\x91", b"\xce" + b"\x91" * 4),
    *(b"\xcf" + b"\x91" * 8, b"\xd0\x91", b"\xd1\x91\x91", b"\xd2" + b"\x91" * 4, b"\xd3" + b"\x91" * 8),
    *(b"\xc4\x02\x91\x91", b"\xc5\x00\x02\x91\x91", b"\xc6\x00\x00\x00\x02\x91\x91"),
    *(b"\xd9\x02ab", b"\xda\x00\x02ab", b"\xdb\x00\x00\x00\x02ab"),
    *(b"\xd4\x05\x91", b"\xd5\x05\x91\x91", b"\xd6\x05" + b"\x91" * 4, b"\xd7\x05" + b"\x91" * 8),
    *(b"\xd8\x05" + b"\x91" * 16, b"\xc7\x02\x05\x91\x91", b"\xc8\x00\x02\x05\x91\x91"),
    *(b"\xc9\x00\x00\x00\x02\x05\x91\x91", b"\x90", b"\x80", b"\xdc\x00\x00", b"\xdd\x00\x00\x00\x00"),
    *(b"\xde\x00\x00", b"\xdf\x00\x00\x00\x00", b"\x92\x90\x90", b"\x82\xa1a\x90\xa1b\x90"),
    *(b"\xdc\x00\x01\x91\x05", b"\xde\x00\x01\xa1a\x91\x05", b"\xdd\x00\x00\x00\x01\x90"),
    b"\xdf\x00\x00\x00\x01\xa1a\x90",
]


@pytest.mark.parametrize("first", EVERY_HEAD, ids=lambda data: data[:1].hex())
def test_every_kind_of_value_is_walked_over_whole(first: bytes) -> None:
    """Two values in a list, the second 10 deep: the walk finds it behind any first one, and not too early."""
    data = b"\x92" + first + nested(9)
    assert len(decode(data, list[object], max_depth=10)) == 2
    with pytest.raises(MalformedMessageError, match="deeper than 9"):
        decode(data, list[object], max_depth=9)


@pytest.mark.parametrize("type", [object, list[object], Item, msgspec.Raw, dict[str, msgspec.Raw]])
@pytest.mark.parametrize("bomb", [b"\x91" * 200_000, b"\x81\xa1a" * 90_000, b"\xdd\xff\xff\xff\xff" * 50_000])
def test_a_depth_bomb_is_malformed(bomb: bytes, type: Any) -> None:
    with pytest.raises(MalformedMessageError, match="deeper than 64"):
        decode(bomb, type)


def test_the_depth_limit_does_not_lean_on_the_interpreters() -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000_000)
    try:
        with pytest.raises(MalformedMessageError, match="deeper than 64"):
            decode(b"\x91" * 2_000_000, object)
    finally:
        sys.setrecursionlimit(before)


def test_the_walk_is_linear() -> None:
    """Eight times the bytes may cost up to 24 times as much; a quadratic walk would cost 64 times."""

    def cost(count: int) -> float:
        data = encode([[number] for number in range(count)], limit=None)
        best = math.inf
        for _ in range(5):
            start = time.process_time()
            decode(data, msgspec.Raw)
            best = min(best, time.process_time() - start)
        return best

    assert cost(24_000) < 24 * cost(3_000)


@given(st.binary(max_size=60), st.sampled_from(TYPES))
def test_any_bytes_raise_only_our_errors(data: bytes, type: Any) -> None:
    with contextlib.suppress(MalformedMessageError):
        decode(data, type)


@given(values, st.sampled_from(TYPES), st.data())
def test_damaged_bytes_raise_only_our_errors(value: object, type: Any, data: st.DataObject) -> None:
    sent = bytearray(encode(value))
    for _ in range(data.draw(st.integers(0, 3))):
        sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(sent)))
    with contextlib.suppress(MalformedMessageError):
        decode(bytes(sent[:cut]), type)


class TestPydantic:
    def order(self, **changes: Any) -> Order:
        given: dict[str, Any] = {
            "id": uuid4(),
            "due": datetime(2026, 11, 18, 1, 2, 3, 4, UTC),
            "price": Decimal("1.10"),
        }
        return Order(**(given | changes))

    def test_round_trip_of_a_strict_model(self) -> None:
        order = self.order(note=b"\xff\x00", wait=timedelta(seconds=90), kinds={1, 2}, theAlias=7)
        assert decode(encode({"order": order}), dict[str, Order]) == {"order": order}
        assert math.isnan(decode(encode(self.order(share=math.nan)), Order).share)

    def test_what_does_not_fit_is_named_without_its_value(self) -> None:
        order = msgspec.to_builtins(self.order().model_dump() | {"price": "hunter2"})
        with pytest.raises(MalformedMessageError, match=r"not a Order: price: .* - at `\$\[0\]`") as caught:
            decode(encode([order]), list[Order])
        assert "hunter2" not in str(caught.value)
        assert "hunter2" not in str(caught.value.cause)

    def test_a_model_changed_behind_its_checks_is_refused(self) -> None:
        order = self.order()
        object.__setattr__(order, "price", ["no"])
        with pytest.raises(MalformedMessageError, match="Order cannot be sent"):
            encode(order)


class TestBestEffort:
    class Saved(msgspec.Struct):
        last: str
        seen: int
        when: date
        gone: list[int]

    class Wanted(msgspec.Struct, rename={"seen_at": "when"}):
        last: str
        seen_at: date
        seen: tuple[int, ...] = (7,)
        new: str = "new"

    saved = encode(Saved("a", 3, date(2026, 1, 2), [1]))

    def test_fitting_loaded_new_defaulted_unknown_dropped(self) -> None:
        misfits: dict[str, str] = {}
        state = decode_best_effort(self.saved, self.Wanted, on_misfit=misfits.__setitem__)
        assert state == self.Wanted("a", date(2026, 1, 2), (7,), "new")
        assert misfits == {"seen": "Expected `array`, got `int`"}
        assert decode_best_effort(self.saved, self.Wanted) == state

    def test_what_fits_is_loaded_whole(self) -> None:
        def never(name: str, why: str) -> None:
            raise AssertionError(name)

        state = decode_best_effort(self.saved, self.Saved, on_misfit=never)
        assert state == self.Saved("a", 3, date(2026, 1, 2), [1])

    def test_dataclasses(self) -> None:
        assert decode_best_effort(encode({"last_id": 5, "seen": 5, "x": 1}), Progress) == Progress("", 5)

    def test_a_required_field_that_does_not_fit_is_malformed(self) -> None:
        with pytest.raises(MalformedMessageError, match="missing required field `last`"):
            decode_best_effort(encode({"last": 1, "when": "2026-01-02"}), self.Wanted)

    @pytest.mark.parametrize("data", [b"", b"\x01", b"\x91\x01", b"\x81\x01\x01", nested(80)])
    def test_what_is_no_mapping_is_malformed(self, data: bytes) -> None:
        with pytest.raises(MalformedMessageError):
            decode_best_effort(data, self.Wanted)

    def test_types_without_fields_are_decoded_as_they_are(self) -> None:
        assert decode_best_effort(encode({"a": 1}), dict[str, int]) == {"a": 1}
        with pytest.raises(MalformedMessageError):
            decode_best_effort(encode(1), str)

    @given(
        st.dictionaries(st.sampled_from(["last", "when", "seen", "new", "other"]), values, max_size=5)
        | st.binary(max_size=20)
    )
    def test_whatever_was_saved_raises_only_our_error(self, saved: object) -> None:
        data = saved if isinstance(saved, bytes) else encode(saved)
        try:
            state = decode_best_effort(data, self.Wanted)
        except MalformedMessageError:
            return
        assert isinstance(saved, dict)
        assert state.last == saved["last"]
        assert decode(encode(state), self.Wanted) == state
