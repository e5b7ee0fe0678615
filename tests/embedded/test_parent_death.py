"""Servers die with their parent, however it dies; what it could not remove, the next one removes."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from redis_cluster_kit.embedded import folders
from redis_cluster_kit.embedded.processes import wait_until

_REDIS = """
from redis_cluster_kit.embedded import RedisServer
server = RedisServer.start()
"""
_REDIS_ON_A_THREAD = """
import threading
from redis_cluster_kit.embedded import RedisServer
started = []
thread = threading.Thread(target=lambda: started.append(RedisServer.start()))
thread.start()
thread.join()
server = started[0]
"""
_PAUSED_REDIS = _REDIS + "server.pause()\n"
_POSTGRES = """
from redis_cluster_kit.embedded import PostgresServer
server = PostgresServer.start()
server.create_database("a")
"""
# All of the server's processes: PostgreSQL has several, each in a session of its own.
_REPORT = """
import psutil
print(server.folder, *(child.pid for child in psutil.Process().children(recursive=True)), flush=True)
input()
"""


@dataclass
class Parent:
    """A process that has started a server and waits for a line on its standard input."""

    process: subprocess.Popen[str]
    folder: Path
    children: list[psutil.Process]


StartParent = Callable[[str], Parent]


@pytest.fixture
def temporary_root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place of their own for temporary folders: the orphans of others are not ours to remove."""
    root = folders.make_folder(many_files=True)
    root.chmod(0o755)  # PostgreSQL may run as another user
    monkeypatch.setattr(tempfile, "tempdir", str(root))
    monkeypatch.setenv("TMPDIR", str(root))  # for the parents
    yield root
    folders.remove_folder(root)


@pytest.fixture
def start_parent(temporary_root: Path) -> Iterator[StartParent]:
    with ExitStack() as running:

        def start(text: str) -> Parent:
            command = [sys.executable, "-c", text + _REPORT]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            running.enter_context(process)
            running.callback(process.kill)
            assert process.stdout is not None
            folder, *children = process.stdout.readline().split()
            return Parent(process, Path(folder), [psutil.Process(int(pid)) for pid in children])

        yield start


def _all_gone(processes: list[psutil.Process]) -> bool:
    return all(not it.is_running() or it.status() == psutil.STATUS_ZOMBIE for it in processes)


@pytest.mark.parametrize(
    ("text", "count"),
    [(_REDIS, 1), (_REDIS_ON_A_THREAD, 1), (_PAUSED_REDIS, 1), (_POSTGRES, 2)],
    ids=["redis", "redis on a thread", "paused redis", "postgres"],
)
def test_sigkill_of_the_parent_takes_the_server_down(
    start_parent: StartParent, text: str, count: int
) -> None:
    parent = start_parent(text)
    assert len(parent.children) >= count
    assert not _all_gone(parent.children)
    parent.process.kill()
    wait_until(lambda: _all_gone(parent.children), 5, "the server to die with its parent")
    assert parent.folder.is_dir()  # nobody was left to remove it


def test_next_process_removes_the_folders_of_a_killed_one(
    start_parent: StartParent, temporary_root: Path
) -> None:
    parent = start_parent(_REDIS)
    parent.process.kill()
    wait_until(lambda: _all_gone(parent.children), 5, "the server to die with its parent")
    folders.remove_orphans()
    assert parent.folder.is_dir()  # too young: it might be one that is about to be locked
    folders.remove_orphans(older_than=0)
    assert list(temporary_root.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "end"),
    [(_REDIS, "returns"), (_REDIS, "interrupted"), (_POSTGRES, "returns")],
    ids=["redis returns", "redis interrupted", "postgres returns"],
)
def test_parent_that_ends_leaves_nothing(start_parent: StartParent, text: str, end: str) -> None:
    parent = start_parent(text)
    if end == "interrupted":
        parent.process.send_signal(signal.SIGINT)  # KeyboardInterrupt
        parent.process.wait(5)
    else:
        parent.process.communicate("\n", timeout=5)
    assert _all_gone(parent.children)
    assert not parent.folder.exists()


def test_folder_of_a_living_process_is_no_orphan(start_parent: StartParent) -> None:
    parent = start_parent(_REDIS)
    own = folders.make_folder()
    folders.remove_orphans(older_than=0)
    assert own.is_dir()
    assert parent.folder.is_dir()
    folders.remove_folder(own)
    assert not own.exists()


def test_forked_copy_leaves_the_original_its_folders() -> None:
    text = """
import os
from redis_cluster_kit.embedded import RedisServer, folders
with RedisServer.start() as server:
    if not (child := os.fork()):
        assert not folders.is_temporary(server.folder)
        raise SystemExit(0)  # with all of its exit handlers
    assert os.waitpid(child, 0)[1] == 0
    assert server.call("PING") == "PONG"
    assert folders.is_temporary(server.folder) and server.folder.is_dir()
"""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
