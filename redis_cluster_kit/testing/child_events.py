"""The child's side of `ChildProcess`: facts out as JSON lines, commands in as JSON lines.

`main` is the way in of every child: it dies with its parent, keeps stdout for events (what is printed
goes to stderr) and then runs the target. What a child does is the target's affair.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import importlib.util
import inspect
import json
import os
import runpy
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import redis_cluster_kit
from redis_cluster_kit.clock import Clock

_PR_SET_PDEATHSIG = 1
_lock = threading.Lock()
_event_fd = 1


def emit(name: str, /, **fields: Any) -> None:
    """Tell the parent a fact: one JSON line, written at once, with the boot clock's time and the pid."""
    own = {"event": name, "t_boot": Clock.boot(), "pid": os.getpid()}
    if taken := own.keys() & fields.keys():
        raise ValueError(f"expected fields of other names than {sorted(own)}, got {sorted(taken)}")
    line = json.dumps(own | fields, default=str)
    data = line.encode() + b"\n"
    with _lock:
        while data:
            data = data[os.write(_event_fd, data) :]


async def commands() -> AsyncIterator[Any]:
    """Give what the parent sends, one JSON value each, until it closes the pipe. Once per process."""
    reader = asyncio.StreamReader(limit=2**24)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(0), "rb", buffering=0)
    )
    try:
        while line := await reader.readline():
            yield json.loads(line)
    finally:
        transport.close()


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent's starting thread ends; go now if it already has."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _keep_stdout_for_events() -> None:
    global _event_fd  # noqa: PLW0603 - a process has one stdout
    _event_fd = os.dup(1)
    os.dup2(2, 1)


def _load(place: str) -> ModuleType:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses and msgspec look their module up by name
    spec.loader.exec_module(module)
    return module


def _run(target: str, arguments: list[str]) -> None:
    place, colon, attribute = target.partition(":")
    if colon:
        function: Callable[..., Any] = getattr(_load(place), attribute)
        result = function(*arguments)
        if inspect.iscoroutine(result):
            asyncio.run(result)
        return
    sys.argv = [place, *arguments]
    if place.endswith(".py"):
        runpy.run_path(place, run_name="__main__")
    else:
        runpy.run_module(place, run_name="__main__", alter_sys=True)


def main(parent: str, target: str, *arguments: str) -> None:
    """Run a target as a child of that process: `package.module`, `file.py`, or either with `:function`."""
    die_with_parent(int(parent))
    _keep_stdout_for_events()
    emit("started", target=target, package=str(Path(redis_cluster_kit.__file__).parent))
    _run(target, list(arguments))
