"""A few Redis commands over a plain socket, for servers that are being started and watched.

Synchronous RESP2, one command at a time. Not a client for applications: `redis_access` is.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

Reply: TypeAlias = "str | int | list[Reply] | None"


class RespError(Exception):
    """The server answered with an error; the text is the server's."""


class RespClient:
    """One connection. `call("SET", "k", "v")` returns text, a number, None or a list of them."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        path: str | Path | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        timeout: float = 2.0,
    ) -> None:
        if path is None:
            self._socket = socket.create_connection((host, port), timeout)
        else:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if path is not None:
                self._socket.settimeout(timeout)
                self._socket.connect(str(path))
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
            self._reader = self._socket.makefile("rb")
            if password is not None:
                self.call("AUTH", password)
        except BaseException:
            self._socket.close()
            raise

    def call(self, *parts: str | int | bytes) -> Reply:
        """Send one command and return its reply; `RespError` for an error reply."""
        frame = [b"*%d\r\n" % len(parts)]
        for part in parts:
            data = part if isinstance(part, bytes) else str(part).encode()
            frame.append(b"$%d\r\n%b\r\n" % (len(data), data))
        self._socket.sendall(b"".join(frame))
        return self._read()

    def text(self, *parts: str | int | bytes) -> str:
        """`call` for commands that answer text."""
        reply = self.call(*parts)
        if not isinstance(reply, str):
            raise RespError(f"{parts[0]!r} was expected to answer text, it answered {reply!r}")
        return reply

    def info(self, section: str) -> dict[str, str]:
        """`INFO section` as a dictionary."""
        return parse_info(self.text("INFO", section))

    def _read(self) -> Reply:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            raise RespError(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return self._bulk(int(rest))
        if kind == b"*":
            return None if rest == b"-1" else self._array(int(rest))
        raise RespError(f"not a RESP2 reply: {line[:40]!r}")

    def _array(self, count: int) -> list[Reply]:
        # Every element is read before an error among them is raised: the next call must find its own reply.
        items: list[Reply] = []
        failure: RespError | None = None
        for _ in range(count):
            try:
                items.append(self._read())
            except RespError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return items

    def _bulk(self, size: int) -> str | None:
        if size < 0:
            return None
        data = self._reader.read(size + 2)
        if len(data) < size + 2:
            raise ConnectionResetError("the server closed the connection inside a reply")
        return data[:-2].decode(errors="surrogateescape")

    def _line(self) -> bytes:
        line = self._reader.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("the server closed the connection")
        return line[:-2]

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()
        self._socket.close()

    def __enter__(self) -> RespClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def parse_info(text: str) -> dict[str, str]:
    """The `name:value` lines of INFO and CLUSTER INFO."""
    pairs = (line.partition(":") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}
