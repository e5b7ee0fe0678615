"""Pairs the statements of one PostgreSQL connection with their answers, to aim at one of them.

Pure: no sockets. Every simple query and every Sync is answered up to one ReadyForQuery; a prepared statement
is known by the text it was parsed from. Encrypted connections pass unread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic

from .resp_frames import BrokenFrameError
from .resp_pairing import A, Command, Direction, Match

_ENCRYPTION_REQUESTS = {80877103, 80877104}  # TLS, GSSAPI
_LONGEST = 2**30


class _Messages:
    """Cuts bytes into messages: a type byte (once past the greeting), a length, a body."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def push(self, data: bytes) -> None:
        self._buffer += data

    def take(self, head: int) -> bytes | None:
        if len(self._buffer) < head + 4:
            return None
        length = int.from_bytes(self._buffer[head : head + 4])
        if not 4 <= length < _LONGEST:
            raise BrokenFrameError(f"expected a message's length, got {length}")
        return self.exactly(head + length)

    def exactly(self, size: int) -> bytes | None:
        if len(self._buffer) < size:
            return None
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def rest(self) -> bytes:
        left = bytes(self._buffer)
        self._buffer.clear()
        return left


class PostgresConversation(Generic[A]):
    """The statements and answers of one connection, until one of them is lost; then nothing passes any more.

    `aims` is shown the words of every statement that is about to run, and returns what aims at it.
    """

    def __init__(self, aims: Callable[[Command], Sequence[A]]) -> None:
        self._aims = aims
        self._messages: dict[Direction, _Messages] = {"to_server": _Messages(), "to_client": _Messages()}
        self._greeted = False
        self._asked_for_encryption = False
        self._plain = False
        self._dead = False
        self._texts: dict[bytes, Command] = {}
        self._bound: A | None = None
        self._awaited: deque[A | None] = deque()
        self._held: list[bytes] = []

    @property
    def unanswered(self) -> int:
        """How many statements passed whose answers did not."""
        return len(self._awaited)

    def inspect(self, direction: Direction, data: bytes) -> tuple[bytes, A | None]:
        """Return what of these bytes may pass, and whose loss ends the conversation after them."""
        if self._dead:
            return b"", None
        if self._plain:
            return b"".join([*self._let_go(direction), data]), None
        self._messages[direction].push(data)
        passed: list[bytes] = []
        try:
            lost = self._sent(passed) if direction == "to_server" else self._answered(passed)
        except BrokenFrameError:  # another protocol after all: a rule that needed statements counts 0
            self._plain = True
            lost = None
        self._dead = lost is not None
        if self._plain:
            passed += self._let_go(direction)
        return b"".join(passed), lost

    def _let_go(self, direction: Direction) -> list[bytes]:
        held = self._held if direction == "to_client" else []
        self._held = [] if direction == "to_client" else self._held
        return [*held, self._messages[direction].rest()]

    def _sent(self, passed: list[bytes]) -> A | None:
        messages = self._messages["to_server"]
        while (message := messages.take(1 if self._greeted else 0)) is not None:
            if not self._greeted:
                self._greeting(message)
            elif (lost := self._statement(message)) is not None:
                return lost
            passed.append(message)
        return None

    def _greeting(self, message: bytes) -> None:
        if int.from_bytes(message[4:8]) in _ENCRYPTION_REQUESTS:
            self._asked_for_encryption = True
        else:
            self._greeted = True
            self._awaited.append(None)  # the greeting too is answered up to a ReadyForQuery

    def _statement(self, message: bytes) -> A | None:
        kind, body = message[:1], message[5:]
        if kind == b"P":
            name, text = _two_strings(body)
            self._texts[name] = _words(text)
        elif kind == b"B":
            _, name = _two_strings(body)
            return self._bind(self._aim(self._texts.get(name, ())))
        elif kind == b"Q":
            aim = self._aim(_words(body.rstrip(b"\0")))
            if aim is not None and aim.what == "command":
                return aim
            self._awaited.append(aim)
        elif kind in {b"S", b"F"}:
            self._awaited.append(self._bound)
            self._bound = None
        return None

    def _bind(self, aim: A | None) -> A | None:
        if aim is None or aim.what == "command":
            return aim
        if self._bound is None:
            self._bound = aim
        else:  # both are answered up to one ReadyForQuery, which can be lost once only
            aim.try_the_next()
        return None

    def _aim(self, words: Command) -> A | None:
        # One rule loses one thing: a statement that must not arrive goes before its answer; the rest aim anew
        aims = sorted(self._aims(words), key=lambda aim: aim.what) if words else []
        for other in aims[1:]:
            other.try_the_next()
        return aims[0] if aims else None

    def _answered(self, passed: list[bytes]) -> A | None:
        messages = self._messages["to_client"]
        if self._asked_for_encryption and (answer := messages.exactly(1)) is not None:
            passed.append(answer)
            self._asked_for_encryption = False
            self._plain = answer != b"N"
        while not self._plain and (message := messages.take(1)) is not None:
            self._held.append(message)
            if (lost := self._judge(message[:1])) is not None:
                return lost
            if not self._awaited or self._awaited[0] is None:
                passed += self._held
                self._held.clear()
            if message[:1] == b"Z" and self._awaited:
                self._awaited.popleft()
        return None

    def _judge(self, kind: bytes) -> A | None:
        """Return the aim whose answer is complete; let go of one whose statement failed."""
        aim = self._awaited[0] if self._awaited else None
        if aim is None:
            return None
        failed = kind == b"E" and not aim.errors
        if failed and aim.active:
            aim.try_the_next()
        if failed or not aim.active:
            self._awaited[0] = None
            return None
        if kind != b"Z":
            return None
        self._awaited.popleft()
        return aim


def statement(text: str) -> Match:
    """Match SQL statements that hold this text, whatever their case and their blanks."""
    wanted = b" ".join(_words(text.encode())).upper()

    def matches(words: Command) -> bool:
        return wanted in b" ".join(words).upper()

    return matches


def _two_strings(body: bytes) -> tuple[bytes, bytes]:
    first, _, rest = body.partition(b"\0")
    return first, rest.partition(b"\0")[0]


def _words(text: bytes) -> Command:
    return tuple(text.rstrip(b"; \r\n\t").split())
