"""A virtual environment for each peer, made on first use: their pins of redis-py contradict one another.

They are kept below the user's cache folder (`XDG_CACHE_HOME`), named after what is in them.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from .catalogue import Peer

FOR_ALL = ("uvloop", "hiredis")
PATIENCE = 300.0
_READY = "complete"


class NotInstalledError(Exception):
    """A peer cannot be measured here; the text says why."""


def cache() -> Path:
    """Return the folder that holds the environments."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "redis-cluster-kit" / "peers"


def environment(peer: Peer) -> Path:
    """Return the Python of a peer's environment, made now if it is not there."""
    wanted = (*peer.requirements, *FOR_ALL)
    digest = hashlib.blake2b(repr((wanted, platform.python_version())).encode(), digest_size=4).hexdigest()
    folder = cache() / f"{peer.module}-{digest}"
    if not (folder / _READY).is_file():
        print(f"installing {', '.join(peer.requirements)}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        for command in _commands(folder, wanted):
            _run(peer, command)
        (folder / _READY).touch()
    return _python(folder)


def version(peer: Peer) -> str:
    """Return the version of a peer that is installed."""
    code = f"from importlib.metadata import version; print(version({peer.distribution!r}))"
    found = subprocess.run([environment(peer), "-c", code], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def _commands(folder: Path, wanted: tuple[str, ...]) -> list[list[str]]:
    """With uv where it is there, else with the standard library's venv and pip."""
    uv, python = shutil.which("uv"), str(_python(folder))
    if uv is not None:
        return [
            [uv, "venv", "--quiet", "--python", sys.executable, str(folder)],
            [uv, "pip", "install", "--quiet", "--python", python, *wanted],
        ]
    return [
        [sys.executable, "-m", "venv", str(folder)],
        [python, "-m", "pip", "install", "--quiet", *wanted],
    ]


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _run(peer: Peer, command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.CalledProcessError as error:
        said = str(error.stderr).strip().splitlines()
        raise NotInstalledError(f"{peer.title} cannot be installed: {said[-1] if said else error}") from error
    except (subprocess.TimeoutExpired, OSError) as error:
        raise NotInstalledError(f"{peer.title} cannot be installed: {error}") from error
