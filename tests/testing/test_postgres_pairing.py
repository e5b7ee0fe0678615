"""Statements are paired with their answers however the bytes are cut, and nothing else is touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_cluster_kit.testing.postgres_pairing import PostgresConversation, statement
from redis_cluster_kit.testing.resp_pairing import Command, Direction, Match


@dataclass
class OneAim:
    match: Match
    what: Literal["reply", "command"] = "reply"
    errors: bool = False
    active: bool = True
    wait: int = 1

    def try_the_next(self) -> None:
        self.wait = 1

    def aims(self, words: Command) -> list[OneAim]:
        if not self.match(words) or self.wait <= 0:
            return []
        self.wait -= 1
        return [] if self.wait else [self]


def message(kind: str, body: bytes = b"") -> bytes:
    return kind.encode() + (len(body) + 4).to_bytes(4) + body


def greeting(code: int = 196608, body: bytes = b"user\0postgres\0\0") -> bytes:
    return (len(body) + 8).to_bytes(4) + code.to_bytes(4) + body


def query(text: str) -> bytes:
    return message("Q", text.encode() + b"\0")


def prepared(name: str, text: str = "") -> bytes:
    """Parse (if there is a text), Bind, Execute, Sync."""
    parse = message("P", f"{name}\0{text}\0".encode() + b"\0\0") if text else b""
    return parse + message("B", f"\0{name}\0".encode() + bytes(6)) + message("E", bytes(5)) + message("S")


READY = message("Z", b"I")
DONE = message("C", b"INSERT 0 1\0") + READY
FAILED = message("E", b"SERROR\0\0") + READY
WELCOME = message("R", bytes(4)) + message("S", b"a\0b\0") + READY


def passed(
    talk: PostgresConversation[OneAim], direction: Direction, data: bytes, sizes: list[int]
) -> tuple[bytes, OneAim | None]:
    """Feed in pieces of these sizes; return what passed until something was lost."""
    through = b""
    while data:
        size = sizes.pop() if sizes else len(data)
        piece, data = data[:size], data[size:]
        more, lost = talk.inspect(direction, piece)
        through += more
        if lost is not None:
            return through, lost
    return through, None


def greeted(aim: OneAim) -> PostgresConversation[OneAim]:
    talk = PostgresConversation(aim.aims)
    assert talk.inspect("to_server", greeting()) == (greeting(), None)
    assert talk.inspect("to_client", WELCOME) == (WELCOME, None)
    return talk


@given(st.lists(st.integers(1, 30), max_size=30), st.lists(st.integers(1, 30), max_size=30))
def test_any_chunking_loses_the_same_answer(asked: list[int], answered: list[int]) -> None:
    aim = OneAim(statement("into t"), wait=2)
    talk = greeted(aim)
    sent = prepared("one", "INSERT  INTO t\nVALUES ($1)") + query("SELECT 1;") + prepared("one")
    assert passed(talk, "to_server", sent, asked) == (sent, None)
    assert passed(talk, "to_client", DONE + DONE + DONE, answered) == (DONE + DONE, aim)
    assert talk.inspect("to_client", DONE) == (b"", None)
    assert talk.inspect("to_server", query("SELECT 1")) == (b"", None)


@given(st.lists(st.integers(1, 30), max_size=30))
def test_a_lost_statement_takes_nothing_before_it(sizes: list[int]) -> None:
    aim = OneAim(statement("COMMIT"), what="command")
    before = query("BEGIN;") + prepared("", "INSERT INTO t VALUES (1)")
    assert passed(greeted(aim), "to_server", before + query("COMMIT;"), sizes) == (before, aim)


def test_a_failed_statement_is_passed_over_unless_errors_count() -> None:
    for errors, lost_first in ((False, False), (True, True)):
        aim = OneAim(statement("INSERT"), errors=errors)
        talk = greeted(aim)
        talk.inspect("to_server", query("INSERT 1"))
        assert talk.inspect("to_client", FAILED) == ((b"", aim) if lost_first else (FAILED, None))
        if not lost_first:
            talk.inspect("to_server", query("INSERT 2"))
            assert talk.inspect("to_client", DONE) == (b"", aim)


def test_an_aim_that_was_lifted_lets_the_answer_go() -> None:
    aim = OneAim(statement("INSERT"))
    talk = greeted(aim)
    talk.inspect("to_server", query("INSERT 1"))
    assert talk.inspect("to_client", DONE[:-6]) == (b"", None)
    aim.active = False
    assert talk.inspect("to_client", DONE[-6:]) == (DONE, None)


@pytest.mark.parametrize(("answer", "aimed"), [(b"N", True), (b"S", False)])
def test_encryption_ends_the_reading(answer: bytes, aimed: bool) -> None:
    aim = OneAim(statement("COMMIT"), what="command")
    talk = PostgresConversation(aim.aims)
    request = greeting(80877103, b"")
    assert talk.inspect("to_server", request) == (request, None)
    assert talk.inspect("to_client", answer) == (answer, None)
    sent = greeting() + query("COMMIT")
    expected = (greeting(), aim) if aimed else (sent, None)
    assert talk.inspect("to_server", sent) == expected


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_foreign_bytes_pass_or_wait_but_never_raise(sent: bytes, answered: bytes) -> None:
    talk = PostgresConversation(OneAim(statement("COMMIT")).aims)
    pieces: list[tuple[Direction, bytes]] = [("to_server", sent), ("to_client", answered)]
    for direction, data in pieces:
        through, lost = talk.inspect(direction, data)
        assert lost is None
        assert data.startswith(through)
