"""Runs `rck` with a pseudo terminal, and keeps what it wrote there."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from .conftest import COMMAND, Rck


class Terminal:
    """Our end of the terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._bytes = b""

    @property
    def seen(self) -> str:
        """What was written so far."""
        return self._bytes.decode(errors="replace")

    def read(self) -> str:
        """Take what is there now; return all of it."""
        with contextlib.suppress(OSError):  # the other end is closed: nothing more will come
            while select.select([self._descriptor], [], [], 0.02)[0]:
                self._bytes += os.read(self._descriptor, 65_536)
        return self.seen

    def type(self, text: str) -> None:
        """Type."""
        os.write(self._descriptor, text.encode())


@contextmanager
def in_terminal(
    rck: Rck, *words: str, **variables: str
) -> Iterator[tuple[subprocess.Popen[bytes], Terminal]]:
    """Run `rck` in a terminal of its own."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *words],
        env=rck.environment(TERM="xterm", COLUMNS="120", **variables),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    try:
        os.close(theirs)
        yield process, Terminal(ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
