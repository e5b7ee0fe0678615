"""Arguments by name: what a sender may get wrong is refused before it is sent; an owner checks them again."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_cluster_kit.codec import encode
from redis_cluster_kit.entity.arguments import Arguments
from redis_cluster_kit.errors import MalformedMessageError, PayloadTooLargeError


class Line(msgspec.Struct):
    name: str
    count: int = 1


ARGUMENTS = Arguments("Cart.add", {"line": Line, "note": str, "tags": list[str]}, frozenset({"line", "note"}))


def encoded(*args: Any, limit: int = 1_000, **kwargs: Any) -> bytes:
    return ARGUMENTS.encode(args, kwargs, limit=limit, max_depth=8)


def decoded(values: object) -> dict[str, Any]:
    return ARGUMENTS.decode(encode(values, limit=None), max_depth=8)


def test_they_travel_by_name() -> None:
    by_place = encoded(Line("tea"), "soon", ["hot"])
    by_name = encoded(tags=["hot"], note="soon", line=Line("tea"))
    expected = {"line": {"name": "tea", "count": 1}, "note": "soon", "tags": ["hot"]}
    assert msgspec.msgpack.decode(by_place) == msgspec.msgpack.decode(by_name) == expected
    assert ARGUMENTS.decode(by_place, max_depth=8) == {"line": Line("tea"), "note": "soon", "tags": ["hot"]}


def test_what_is_not_given_is_not_sent() -> None:
    """So the owner's default decides, and it may change in a deploy."""
    data = encoded(Line("tea"), "soon")
    assert "tags" not in msgspec.msgpack.decode(data)
    assert "tags" not in ARGUMENTS.decode(data, max_depth=8)


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((Line("tea"), "a", [], 4), {}, r"Cart.add takes 3 arguments, got 4"),
        ((Line("tea"),), {}, r"needs the argument 'note'"),
        ((), {}, r"needs the argument 'line'"),
        ((Line("tea"), "a"), {"noet": "b"}, r"has no argument 'noet'"),
        ((Line("tea"), "a"), {"note": "b"}, r"two values for argument 'note'"),
        ((Line("tea"), "a"), {"self": 1}, r"has no argument 'self'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_calls_that_python_would_refuse(args: tuple[Any, ...], kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        encoded(*args, **kwargs)


@pytest.mark.parametrize(
    "args",
    [
        ("tea", "soon"),
        (Line("tea"), 5),
        (Line("tea"), None),
        (Line("tea"), "soon", "hot"),
        (Line("tea"), "soon", [1]),
        (Line(3), "soon"),  # type: ignore[arg-type]
        (Line("tea", count="many"), "soon"),  # type: ignore[arg-type]
        (object(), "soon"),
        (Line("tea"), lambda: None),
        (Line("tea"), "\ud800"),
    ],
    ids=lambda value: re.sub(r" at 0x\w+", "", str(value))[:40],
)
def test_values_that_do_not_fit_are_refused_at_the_sender(args: tuple[Any, ...]) -> None:
    with pytest.raises(MalformedMessageError):
        encoded(*args)


def test_too_many_bytes_and_too_deep_values_are_refused_at_the_sender() -> None:
    deep: Any = []
    for _ in range(20):
        deep = [deep]
    anything = Arguments("A.b", {"value": Any}, frozenset({"value"}))
    with pytest.raises(PayloadTooLargeError):
        encoded(Line("tea"), "x" * 1_001)
    with pytest.raises(MalformedMessageError):
        anything.encode((deep,), {}, limit=1_000, max_depth=8)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(MalformedMessageError):
        anything.encode((endless,), {}, limit=1_000, max_depth=8)


def test_an_older_or_newer_sender_is_understood() -> None:
    assert decoded({"line": {"name": "tea"}, "note": "", "gone": 1}) == {"line": Line("tea"), "note": ""}
    more = Arguments("Cart.add", {"line": Line, "note": str, "new": int}, frozenset({"line", "note"}))
    assert more.decode(encoded(Line("tea"), "soon", ["hot"]), max_depth=8) == {
        "line": Line("tea"),
        "note": "soon",
    }


@pytest.mark.parametrize("values", [{"line": {"name": "tea"}}, {"line": 1, "note": ""}, {}, [], 3])
def test_bytes_that_do_not_fit_are_malformed(values: object) -> None:
    with pytest.raises(MalformedMessageError):
        decoded(values)


@given(st.binary(max_size=64))
def test_any_bytes_are_arguments_or_malformed(data: bytes) -> None:
    try:
        ARGUMENTS.decode(data, max_depth=8)
    except MalformedMessageError:
        return


def test_constraints_of_annotations_hold_on_both_sides() -> None:
    positive = Arguments("A.b", {"n": Annotated[int, msgspec.Meta(gt=0)]}, frozenset({"n"}))
    with pytest.raises(MalformedMessageError):
        positive.encode((0,), {}, limit=100, max_depth=8)
    with pytest.raises(MalformedMessageError):
        positive.decode(encode({"n": -1}, limit=None), max_depth=8)
