"""Pairs the commands of one connection with their replies, to aim at one of them.

Pure: no sockets. Pairing is by order, as RESP has it; where a connection stops answering one to one
(subscriptions, replication, MONITOR) its bytes pass unread.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

from .resp_frames import BrokenFrameError, Frame, FrameSplitter

Direction: TypeAlias = Literal["to_server", "to_client"]
Command: TypeAlias = tuple[bytes, ...]
Match: TypeAlias = Callable[[Command], bool]

_SCRIPTS = {b"EVAL", b"EVAL_RO", b"EVALSHA", b"EVALSHA_RO"}
# After these a connection's replies no longer pair with its commands, one to one.
_UNPAIRED = {b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE", b"MONITOR", b"SYNC", b"PSYNC"}


class Aim(Protocol):
    """Something that picks one command to lose, or its reply."""

    @property
    def what(self) -> Literal["reply", "command"]:
        """Which of the two."""
        ...

    @property
    def errors(self) -> bool:
        """Whether an error reply counts as well."""
        ...

    @property
    def active(self) -> bool:
        """False once it is no longer wanted."""
        ...

    def try_the_next(self) -> None:
        """The reply was an error: aim at the next matching command instead."""
        ...


A = TypeVar("A", bound=Aim)


class Conversation(Generic[A]):
    """The commands and replies of one connection, paired by their order, until one of them is lost.

    `aims` is shown every command and returns what aims at it. After a loss nothing passes any more.
    """

    def __init__(self, aims: Callable[[Command], Sequence[A]]) -> None:
        self._aims = aims
        self._splitters = {"to_server": FrameSplitter(inline=True), "to_client": FrameSplitter()}
        self._plain: set[Direction] = set()
        self._awaited: deque[A | Literal["plain"] | None] = deque()
        self._dead = False

    @property
    def unanswered(self) -> int:
        """How many commands passed whose replies did not."""
        return len(self._awaited)

    def inspect(self, direction: Direction, data: bytes) -> tuple[bytes, A | None]:
        """Return what of these bytes may pass, and whose loss ends the conversation after them."""
        if self._dead:
            return b"", None
        if direction in self._plain:
            return data, None
        splitter = self._splitters[direction]
        splitter.push(data)
        passed: list[bytes] = []
        while (frame := self._next(direction, splitter)) is not None:
            lost = self._command(frame) if direction == "to_server" else self._reply(frame)
            if lost is not None:
                self._dead = True
                return b"".join(passed), lost
            passed.append(frame.raw)
        if direction in self._plain:
            passed.append(splitter.rest())
        return b"".join(passed), None

    def _next(self, direction: Direction, splitter: FrameSplitter) -> Frame | None:
        if direction == "to_client" and self._awaited and self._awaited[0] == "plain":
            self._plain.add(direction)
        if direction in self._plain:
            return None
        try:
            return splitter.next_frame()
        except BrokenFrameError:  # not RESP after all (TLS?): let it pass; a rule that needed frames counts 0
            self._plain.add(direction)
            return None

    def _command(self, frame: Frame) -> A | None:
        if not frame.leaves:  # an empty line or array: servers do not answer it
            return None
        # One rule loses one thing: a command that must not arrive goes before its reply, the rest aim anew.
        aims = sorted(self._aims(frame.leaves), key=lambda aim: aim.what)
        for other in aims[1:]:
            other.try_the_next()
        if aims and aims[0].what == "command":
            return aims[0]
        if _ends_pairing(frame.leaves):
            self._plain.add("to_server")
            self._awaited.append("plain")
        else:
            self._awaited.append(aims[0] if aims else None)
        return None

    def _reply(self, frame: Frame) -> A | None:
        if frame.is_push or not self._awaited:
            return None
        aim = self._awaited.popleft()
        if aim is None or aim == "plain" or not aim.active:
            return None
        if frame.is_error and not aim.errors:
            aim.try_the_next()
            return None
        return aim


def _ends_pairing(frame: Command) -> bool:
    name = frame[0].upper()
    return name in _UNPAIRED or (name == b"CLIENT" and len(frame) > 1 and frame[1].upper() == b"REPLY")


def command(*names: str, sha: str = "", argument: tuple[int, bytes | str] | None = None) -> Match:
    """Match commands by name (any of them; none means every command) and by what they carry.

    `sha` is a prefix of the script's SHA1: it matches EVALSHA, and EVAL of the same text.
    `argument=(n, value)` compares the n-th argument, the first after the name being 1 (of
    `EVALSHA sha 1 key`, the key is 3).
    """
    wanted = {name.upper().encode() for name in names}
    place, text = argument or (0, b"")
    value = text.encode() if isinstance(text, str) else text

    def matches(frame: Command) -> bool:
        name = frame[0].upper()
        if wanted and name not in wanted:
            return False
        if sha and not (
            name in _SCRIPTS and len(frame) > 1 and _script_sha(name, frame[1]).startswith(sha.lower())
        ):
            return False
        return argument is None or (len(frame) > place and frame[place] == value)

    return matches


def _script_sha(name: bytes, script: bytes) -> str:
    if name.startswith(b"EVALSHA"):
        return script.decode("ascii", "replace").lower()
    return hashlib.sha1(script, usedforsecurity=False).hexdigest()
