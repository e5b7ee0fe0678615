"""Frames come out whole and the same, however their bytes are cut on the way."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redis_cluster_kit.testing.resp_frames import BrokenFrameError, Frame, FrameSplitter

LINE_TEXT = st.text(st.characters(codec="ascii", exclude_characters="\r\n", min_codepoint=32), max_size=12)


def blob(marker: str, data: bytes) -> bytes:
    return b"%s%d\r\n%s\r\n" % (marker.encode(), len(data), data)


def line(marker: str, text: str) -> bytes:
    return f"{marker}{text}\r\n".encode()


def array(marker: str, items: list[bytes]) -> bytes:
    return b"%s%d\r\n%s" % (marker.encode(), len(items), b"".join(items))


def pairs_of(marker: bytes, pairs: list[tuple[bytes, bytes]]) -> bytes:
    return b"%s%d\r\n%s" % (marker, len(pairs), b"".join(k + v for k, v in pairs))


def described(pairs: bytes, value: bytes) -> bytes:
    return pairs + value


SCALARS = st.one_of(
    st.builds(line, st.sampled_from("+-:_,#("), LINE_TEXT),
    st.builds(blob, st.sampled_from("$=!"), st.binary(max_size=40)),
    st.sampled_from([b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b"%0\r\n"]),
)


def containers(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    lists = st.builds(array, st.sampled_from("*~>"), st.lists(inner, max_size=4))
    maps = st.builds(pairs_of, st.just(b"%"), st.lists(st.tuples(inner, inner), max_size=3))
    attributes = st.builds(pairs_of, st.just(b"|"), st.lists(st.tuples(inner, inner), max_size=2))
    attributed = st.builds(described, attributes, inner)
    return st.one_of(lists, maps, attributed)


FRAMES = st.recursive(SCALARS, containers, max_leaves=12)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@settings(max_examples=100)
@given(st.lists(FRAMES, min_size=1, max_size=6), st.lists(st.integers(0, 10_000), max_size=12))
def test_any_chunking_gives_the_same_frames(frames: list[bytes], cuts: list[int]) -> None:
    splitter = FrameSplitter()
    got = [frame for piece in cut(b"".join(frames), cuts) for frame in splitter.feed(piece)]
    assert [frame.raw for frame in got] == frames
    whole = [FrameSplitter().feed(raw)[0] for raw in frames]
    assert got == whole
    assert splitter.rest() == b""


@settings(max_examples=60)
@given(st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=5), min_size=1, max_size=5))
def test_a_commands_leaves_are_its_arguments_byte_by_byte(commands: list[list[bytes]]) -> None:
    data = b"".join(b"*%d\r\n" % len(c) + b"".join(blob("$", a) for a in c) for c in commands)
    splitter = FrameSplitter(inline=True)
    got = [frame for byte in data for frame in splitter.feed(bytes([byte]))]
    assert [list(frame.leaves) for frame in got] == commands
    assert {frame.kind for frame in got} == {"*"}


@settings(max_examples=100)
@given(st.binary(max_size=60), st.booleans())
def test_garbage_raises_nothing_but_broken_frame(data: bytes, inline: bool) -> None:
    splitter = FrameSplitter(inline=inline)
    try:
        frames = splitter.feed(data)
    except BrokenFrameError:
        return
    assert b"".join(frame.raw for frame in frames) + splitter.rest() == data


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n",
        b"$3\r\nabcd\r\n",
        b"*1x\r\n",
        b"$?\r\n",
        b"$-2\r\n",
        b"+OK\n",
        b"*1\r\nPING\r\n",
        b"$1_0\r\n",
    ],
)
def test_what_is_not_resp_is_refused(data: bytes) -> None:
    with pytest.raises(BrokenFrameError):
        FrameSplitter().feed(data)


def test_inline_commands_stand_beside_framed_ones() -> None:
    frames = FrameSplitter(inline=True).feed(b"PING hi\r\n*1\r\n$4\r\nTIME\r\n\r\n*0\r\n")
    assert [frame.leaves for frame in frames] == [(b"PING", b"hi"), (b"TIME",), (), ()]


def test_attributes_belong_to_the_reply_they_precede() -> None:
    raw = b"|1\r\n+ttl\r\n:9\r\n>2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n"
    assert FrameSplitter().feed(raw) == [Frame(raw, ">", (b"invalidate", b"k"))]
    assert FrameSplitter().feed(raw)[0].is_push
    assert FrameSplitter().feed(b"|1\r\n+a\r\n+b\r\n-ERR no\r\n")[0].is_error


def test_the_rest_can_be_taken_back_in_the_middle_of_a_frame() -> None:
    splitter = FrameSplitter()
    splitter.push(b"+OK\r\n$5\r\nab")
    first = splitter.next_frame()
    assert first is not None
    assert first.raw == b"+OK\r\n"
    assert splitter.next_frame() is None
    assert splitter.rest() == b"$5\r\nab"
    assert splitter.feed(b"+again\r\n")[0].leaves == (b"again",)
