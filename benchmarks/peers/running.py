"""Measures one peer once, from outside: an empty server, its consumer, its producer, and both ended again."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from redis_cluster_kit.embedded import RedisServer

from .catalogue import Peer
from .environments import NotInstalledError, environment

ROOT = Path(__file__).parents[2]
PATIENCE = 300.0
_SHARED_MEMORY = Path("/dev/shm")


class NotMeasuredError(NotInstalledError):
    """A peer is installed but did not do what it should; the text ends with what it said."""


def measure(peer: Peer, messages: int, stamps: int) -> dict[str, Any]:
    """Return messages a second, CPU of its producer, and how long messages were on their way."""
    python = environment(peer)
    shared = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    with RedisServer.start() as server, tempfile.TemporaryDirectory(prefix="peers-", dir=shared) as folder:
        surroundings = {
            **os.environ,
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONSAFEPATH": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PEERS_URL": server.url,
            "PEERS_VARIANT": peer.variant,
            "PEERS_FOLDER": folder,
        }
        command = [str(python), "-m", "benchmarks.peers", peer.module]
        counts = (str(messages), str(stamps))
        with (
            (Path(folder) / "said").open("w+") as said,
            _child([*command, "consume"], surroundings, said, said),
        ):
            found = _produce(peer, [*command, "produce", *counts], surroundings, said)
    if found["lost"]:
        raise NotMeasuredError(f"{peer.title} lost {found['lost']} of {messages} messages")
    return found


def _produce(peer: Peer, command: list[str], surroundings: dict[str, str], said: IO[str]) -> dict[str, Any]:
    with _child(command, surroundings, subprocess.PIPE, said) as producer:
        try:
            output, _ = producer.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            output = ""
        lines = [line for line in output.splitlines() if line.startswith("{")]
        if producer.returncode == 0 and lines:
            found: dict[str, Any] = json.loads(lines[-1])
            return found
    said.flush()
    said.seek(0)
    last = [line.strip() for line in said if line.strip()][-1:]
    raise NotMeasuredError(f"{peer.title} could not be measured: {' '.join(last) or 'it said nothing'}")


@contextmanager
def _child(
    command: list[str], surroundings: dict[str, str], output: Any, errors: Any
) -> Iterator[subprocess.Popen[str]]:
    """Start a process in a group of its own that dies with this one; end the group at the end."""
    process = subprocess.Popen(
        command,
        env=surroundings,
        cwd=surroundings["PEERS_FOLDER"],
        stdout=output,
        stderr=errors,
        text=True,
        start_new_session=True,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
    )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    for number, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
