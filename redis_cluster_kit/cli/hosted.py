"""One process of `rck run`: loads a cluster object, joins, serves until it is told to stop.

Started by `supervisor` as `python -m redis_cluster_kit.cli.hosted`; it tells it through a pipe, one JSON line
each, that it has joined, or why it cannot be done.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib
import inspect
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from redis_cluster_kit.cluster import Cluster
from redis_cluster_kit.errors import KitError

from .commands import CannotError, explain

POINTLESS = 78
"""Exit code of a process that would fail again in the same way (EX_CONFIG)."""
FAILED = 1

_PR_SET_PDEATHSIG = 1
Tell = Callable[..., None]


def load_cluster(target: str) -> Cluster:
    """Return the object that `module:attribute` names, or what it returns if it is a function."""
    place, colon, attribute = target.partition(":")
    if not colon or not place or not attribute:
        raise CannotError(f"{target!r} names no cluster: write module:attribute, like app:cluster")
    try:
        found: Any = importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise
        raise CannotError(f"there is no module {error.name!r} in {Path.cwd()} or on the path") from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise CannotError(f"{target!r}: no {name!r} in {place}")
        found = getattr(found, name)
    if not isinstance(found, Cluster) and callable(found) and not inspect.isclass(found):
        found = found()
    if not isinstance(found, Cluster):
        raise CannotError(
            f"{target!r} is a {type(found).__name__}, not a Cluster or a function that makes one"
        )
    return found


async def host(cluster: Cluster, tell: Tell) -> None:
    """Join and serve; a signal before the cluster is joined ends the joining."""
    loop = asyncio.get_running_loop()
    with anyio.CancelScope() as joining:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, joining.cancel)
        async with cluster:
            tell(event="joined", runner=cluster.runner_id)
            await cluster.run_forever()


def main(target: str, descriptor: int, parent: int) -> int:
    """Do it all and return the exit code."""
    _stop_with(parent)
    tell = _teller(descriptor)
    sys.path.insert(0, str(Path.cwd()))
    try:
        cluster = load_cluster(target)
    except CannotError as error:
        tell(event="refused", why=explain(error))
        return POINTLESS
    except Exception as error:  # noqa: BLE001 - it is the app's own, whatever it is: told, and not tried again
        _show_theirs(error)
        first = str(error).partition("\n")[0]
        tell(event="refused", why=f"{target!r} cannot be loaded: {type(error).__name__}: {first}")
        return POINTLESS
    if not logging.getLogger().handlers:  # the app has not said how it wants to log
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        anyio.run(host, cluster, tell)
    except KitError as error:
        tell(event="failed", why=explain(error))
        return FAILED
    return 0


def _show_theirs(error: Exception) -> None:
    """Print what the app raised, without the frames that only lead there."""
    shown = traceback.TracebackException.from_exception(error)
    shown.stack[:] = [frame for frame in shown.stack if not _leads_there(frame.filename)]
    print("".join(shown.format()), end="", file=sys.stderr, flush=True)


def _leads_there(file: str) -> bool:
    return file == __file__ or file.startswith("<frozen ") or file == importlib.__file__


def _stop_with(parent: int) -> None:
    """Ask the kernel for a SIGTERM when the supervisor dies: then shards are still given away in order."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(FAILED)


def _teller(descriptor: int) -> Tell:
    os.set_inheritable(descriptor, False)

    def tell(**fields: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # the supervisor is gone, and its death ends us anyway
            os.write(descriptor, json.dumps(fields).encode() + b"\n")

    return tell


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
