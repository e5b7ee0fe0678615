"""Whatever bytes come in whatever pieces: callers get their answers or our error, nothing else happens."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import hiredis
from hypothesis import example, given, settings
from hypothesis import strategies as st

from redis_cluster_kit.errors import PersistenceFailedError
from redis_cluster_kit.redis_access.connection import Connection, pack
from redis_cluster_kit.redis_access.urls import Endpoint

PIECES = st.lists(st.integers(1, 40), max_size=30)
REPLIES = st.recursive(
    st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=60) | st.none(),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


class _Wire(asyncio.Transport):
    """Takes what is written and connects to nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_UNIX)
        self.aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket if name == "socket" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True
        self._socket.close()


def _written(reply: Any) -> bytes:
    """A reply as a server writes it."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    return b"*%d\r\n" % len(reply) + b"".join(map(_written, reply))


async def _receive(data: bytes, pieces: list[int], asked: int) -> list[Any]:
    """Feed `data` in pieces to a connection that is owed `asked` answers; return what each caller got."""
    wire, connection = _Wire(), Connection(Endpoint("example", 1), stall_timeout=60)
    connection.connection_made(wire)
    owed = [connection.submit(pack(("ECHO", number))) for number in range(asked)]
    await asyncio.sleep(0)  # written
    for size in [*pieces, len(data) or 1]:
        piece, data = data[:size], data[size:]
        if piece and not wire.aborted:
            connection.data_received(piece)
    connection.abort("over")
    return await asyncio.gather(*owed, return_exceptions=True)


@settings(max_examples=200, deadline=None)
@given(replies=st.lists(REPLIES, min_size=1, max_size=8), pieces=PIECES)
async def test_any_pieces_give_each_caller_its_answer(replies: list[Any], pieces: list[int]) -> None:
    assert await _receive(b"".join(map(_written, replies)), pieces, len(replies)) == replies


@settings(max_examples=300, deadline=None)
@given(
    data=st.binary(max_size=200)
    | st.lists(st.sampled_from([b"*", b"$", b"%", b"~", b":", b"-", b"1", b"9" * 20, b"\r\n", b"a"])).map(
        b"".join
    ),
    pieces=PIECES,
    asked=st.integers(0, 3),
)
@example(data=b"%1\r\n*0\r\n:1\r\n", pieces=[], asked=1)  # a TypeError of the reader
@example(data=b"*1\r\n" * 5_000, pieces=[], asked=1)
async def test_any_bytes_are_an_answer_or_our_error(data: bytes, pieces: list[int], asked: int) -> None:
    for result in await _receive(data, pieces, asked):
        if isinstance(result, BaseException) and not isinstance(result, hiredis.ReplyError):
            assert isinstance(result, PersistenceFailedError)
