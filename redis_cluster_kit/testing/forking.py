"""Children forked from a process that has imported the kit already: a hundredth of a start's processor time.

The forking process hands each of them to the process under which it runs, as if that had started it itself:
its child, killed with it, awaited by it. A child of another kit or Python path is started anew. Linux only.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from asyncio.streams import FlowControlMixin
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from . import processes
from .child_events import die_with_parent

_PR_SET_CHILD_SUBREAPER = 36
_LONGEST_REQUEST = 2**20
_IMPORTED = (
    "redis_cluster_kit.testing",
    "redis_cluster_kit.embedded",
    "redis_cluster_kit.storage.postgres",
    "redis_cluster_kit.storage.sqlite",
    "sqlalchemy.dialects.sqlite.aiosqlite",
)
_WAY_IN = """
import sys
from redis_cluster_kit.testing.child_events import main
from redis_cluster_kit.testing.forking import serve
main(*serve(int(sys.argv[1]), int(sys.argv[2])))
"""
_libc = ctypes.CDLL(None, use_errno=True)


class ForkedProcess:
    """A forked child, as `asyncio.subprocess.Process` shows one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self._transports: list[asyncio.BaseTransport] = []
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._watched = os.pidfd_open(pid)
        self._loop.add_reader(self._watched, self._reap)

    async def connect(self, stdin: int, stdout: int, stderr: int, limit: int) -> None:
        """Take our ends of its pipes."""
        writing, protocol = await self._loop.connect_write_pipe(FlowControlMixin, os.fdopen(stdin, "wb", 0))
        self.stdin = asyncio.StreamWriter(writing, protocol, None, self._loop)
        self.stdout = await self._reader(stdout, limit)
        self.stderr = await self._reader(stderr, limit)
        self._transports.append(writing)

    async def _reader(self, pipe: int, limit: int) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(limit=limit, loop=self._loop)
        reading, _ = await self._loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader, loop=self._loop), os.fdopen(pipe, "rb", 0)
        )
        self._transports.append(reading)
        return reader

    def _reap(self) -> None:
        self._loop.remove_reader(self._watched)
        os.close(self._watched)
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set()

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Wait for its exit; return the code."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def close(self) -> None:
        """Let go of its pipes."""
        for transport in self._transports:
            transport.close()


class ForkServer:
    """`with ForkServer():` and every `ChildProcess` that may is forked. It begins with the first one."""

    def __init__(self) -> None:
        self._requests: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._python_path = os.environ.get("PYTHONPATH")

    def __enter__(self) -> Self:
        processes.forking.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        processes.forking.remove(self)
        if self._requests is not None and self._process is not None:
            self._requests.close()
            self._process.wait()

    def may(self, env: Mapping[str, str]) -> bool:
        """Whether a child with this environment would import what is imported."""
        return env.get("PYTHONPATH") == self._python_path and all(
            value == os.environ.get(name) for name, value in env.items() if name.startswith("PYTHON")
        )

    async def start(
        self, arguments: Sequence[str], env: Mapping[str, str], cwd: Path | str | None, limit: int
    ) -> ForkedProcess:
        """Fork a child that runs this target with these arguments."""
        reading, writing = zip(*(os.pipe() for _ in range(3)), strict=True)
        given = (reading[0], writing[1], writing[2])
        kept = (writing[0], reading[1], reading[2])
        try:
            request = {"arguments": list(arguments), "env": dict(env), "cwd": str(cwd or Path.cwd())}
            pid = self._fork(json.dumps(request).encode(), given)
        finally:
            for end in given:
                os.close(end)
        process = ForkedProcess(pid)
        await process.connect(*kept, limit)
        return process

    def _fork(self, request: bytes, pipes: Sequence[int]) -> int:
        requests = self._connected()
        # Whose parent has ended is given to the nearest process above that wants it.
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(requests, [request], list(pipes))
            pid, handed_over = requests.recv(64), requests.recv(64)
        finally:
            _libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        if not handed_over:
            raise RuntimeError("the process that forks children has ended: its errors are on stderr")
        return int(pid)

    def _connected(self) -> socket.socket:
        if self._requests is None:
            self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603 - our own words
                    [
                        *(sys.executable, "-X", "faulthandler", "-P", "-c", _WAY_IN),
                        *(str(theirs.fileno()), str(os.getpid())),
                    ],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                )
        return self._requests


def serve(requests_at: int, parent: int) -> list[str]:
    """Fork a child for each request; return in the child, with what its `main` takes."""
    die_with_parent(parent)
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    requests = socket.socket(fileno=requests_at)
    while True:
        message, pipes, _, _ = socket.recv_fds(requests, _LONGEST_REQUEST, 3)
        if not message:
            sys.exit(0)
        between = os.fork()
        if between == 0:
            between, child = os.getpid(), os.fork()
            if child:
                requests.send(str(child).encode())
                os._exit(0)
            requests.close()
            return [str(parent), *_become(json.loads(message), pipes, between)]
        for pipe in pipes:
            os.close(pipe)
        os.waitpid(between, 0)
        requests.send(b"it is yours")


def _become(request: dict[str, Any], pipes: Sequence[int], between: int) -> list[str]:
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    while os.getppid() == between:  # until it is the one who asked
        time.sleep(0.0005)
    arguments: list[str] = request["arguments"]
    return arguments
