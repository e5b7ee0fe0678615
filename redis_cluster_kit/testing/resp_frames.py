"""Cuts RESP2 or RESP3 bytes into whole frames, however they arrive.

Pure: no sockets. It finds where each command or reply ends and what its leaves are; it does not turn
replies into Python values. RESP3's streamed types (`$?`, `*?`), which no server sends, are refused.
"""

from __future__ import annotations

from dataclasses import dataclass

_LINES = b"+-:_,#("
_BLOBS = b"$=!"
_LISTS = b"*~>"
_MAPS = b"%|"
_ATTRIBUTE = ord("|")
_DIGITS = 18
"""A length with more digits than this is garbage, not a length."""


class BrokenFrameError(ValueError):
    """These bytes are not RESP."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One command or one reply, with the attributes that came before it."""

    raw: bytes
    """The bytes exactly as they came."""
    kind: str
    """The type byte (`*`, `$`, `-`, `>`, …); empty for an inline command."""
    leaves: tuple[bytes, ...]
    """Every value that is not a container, in order: for a command, its name and arguments."""

    @property
    def is_push(self) -> bool:
        """Whether a server sent this unasked, so that it answers no command."""
        return self.kind == ">"

    @property
    def is_error(self) -> bool:
        """Whether this reply says that the command failed."""
        return self.kind in {"-", "!"}


class FrameSplitter:
    """Takes bytes in any pieces and gives frames back. One per direction of a connection.

    `inline=True` also accepts a bare line (`PING`), as servers do from clients.
    """

    def __init__(self, *, inline: bool = False) -> None:
        self._inline = inline
        self._buffer = bytearray()
        self._start = 0
        self._begin_frame()

    def feed(self, data: bytes) -> list[Frame]:
        """Take more bytes; return the frames they completed."""
        self.push(data)
        frames: list[Frame] = []
        while (frame := self.next_frame()) is not None:
            frames.append(frame)
        return frames

    def push(self, data: bytes) -> None:
        """Take more bytes without cutting yet."""
        if self._start:
            del self._buffer[: self._start]
            self._at -= self._start
            self._start = 0
        self._buffer += data

    def next_frame(self) -> Frame | None:
        """Cut one frame off, or return None until more bytes come."""
        while self._open:
            if not self._take_element():
                return None
        frame = Frame(bytes(self._buffer[self._start : self._at]), self._kind or "", tuple(self._leaves))
        self._start = self._at
        self._begin_frame()
        return frame

    def rest(self) -> bytes:
        """Give up cutting: return, once, every byte that is not part of a returned frame."""
        left = bytes(self._buffer[self._start :])
        self._buffer.clear()
        self._start = 0
        self._begin_frame()
        return left

    def _begin_frame(self) -> None:
        self._at = self._start
        self._open = 1  # elements still to come: nesting needs no stack, only their number
        self._attributes = 0  # how many of those belong to attributes in front of the frame
        self._kind: str | None = None
        self._leaves: list[bytes] = []

    def _take_element(self) -> bool:
        """Consume one element (a leaf whole, a container's header); False if it is not all here."""
        end = self._buffer.find(b"\n", self._at)
        if end < 0:
            return False
        line = bytes(self._buffer[self._at : end + 1])
        marker = line[0]
        if self._is_inline(marker):
            self._leaves.extend(line.split())
            self._kind, self._at, self._open = "", end + 1, 0
            return True
        if not line.endswith(b"\r\n"):
            raise BrokenFrameError(f"expected a line that ends in CR LF, got {line[:40]!r}")
        if marker in _BLOBS:
            return self._take_blob(marker, line, end + 1)
        if marker in _LISTS or marker in _MAPS:
            children = max(0, _length(line)) * (2 if marker in _MAPS else 1)
            self._count(marker, children, None)
        elif marker in _LINES:
            self._count(marker, 0, line[1:-2])
        else:
            raise BrokenFrameError(f"expected a RESP type byte, got {line[:40]!r}")
        self._at = end + 1
        return True

    def _is_inline(self, marker: int) -> bool:
        known = marker in _BLOBS or marker in _LISTS or marker in _MAPS or marker in _LINES
        return self._inline and self._kind is None and not self._attributes and not known

    def _take_blob(self, marker: int, line: bytes, begin: int) -> bool:
        length = _length(line)
        if length < 0:
            self._count(marker, 0, b"")
            self._at = begin
            return True
        end = begin + length
        if len(self._buffer) < end + 2:
            return False
        if bytes(self._buffer[end : end + 2]) != b"\r\n":
            raise BrokenFrameError(
                f"expected CR LF after {length} bytes, got {bytes(self._buffer[end : end + 2])!r}"
            )
        self._count(marker, 0, bytes(self._buffer[begin:end]))
        self._at = end + 2
        return True

    def _count(self, marker: int, children: int, leaf: bytes | None) -> None:
        """Note one element: an attribute is not a value, it comes on top of the one it describes."""
        spent = 0 if marker == _ATTRIBUTE else 1
        self._open += children - spent
        if self._attributes:
            self._attributes += children - spent
        elif marker == _ATTRIBUTE and self._kind is None:
            self._attributes = children
        else:
            self._kind = self._kind or chr(marker)
            if leaf is not None:
                self._leaves.append(leaf)


def _length(line: bytes) -> int:
    """Read the number of a header line; -1 is RESP2's null."""
    digits = line[1:-2]
    if digits == b"-1":
        return -1
    if not digits.isdigit() or len(digits) > _DIGITS:
        raise BrokenFrameError(f"expected a length, got {line[:40]!r}")
    return int(digits)
