"""Temporary folders that go with the process that made them, at the latest when the next such process starts.

A SIGKILLed process cannot tidy up: each folder is locked by its maker, and an unlocked one is nobody's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

_PREFIX = "rck-server-"
# Between a folder's creation and its lock lie microseconds, between its maker's death and the end of a
# server that was shutting down lie seconds.
_ORPHAN_AGE = 60.0
_MEMORY = Path("/dev/shm")  # noqa: S108 - the folders in it are made by mkdtemp
_MEMORY_WANTED = 2**30  # containers often have 64 MB there: too little

_locks: dict[Path, int] = {}
_swept = threading.Event()


def make_folder(*, many_files: bool = False) -> Path:
    """A temporary folder, removed at exit at the latest; its path is short, for a unix socket's 107 bytes.

    With `many_files` it lies in memory where there is enough: a disk may take ten times as long.
    """
    if not _swept.is_set():
        _swept.set()
        remove_orphans()
    root = _MEMORY if many_files and _memory_is_usable() else None
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
    _locks[folder] = _locked(folder)
    return folder


def is_temporary(folder: Path) -> bool:
    """Whether the folder is one of `make_folder`."""
    return folder in _locks


def remove_folder(folder: Path) -> None:
    """Remove a folder of `make_folder`; others are left alone."""
    lock = _locks.pop(folder, None)
    if lock is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_all() -> None:
    """Remove every folder that is left; for the end of the process."""
    for folder in list(_locks):
        remove_folder(folder)


def remove_orphans(*, older_than: float = _ORPHAN_AGE) -> None:
    """Remove folders whose makers were killed before they could, if untouched for `older_than` seconds."""
    roots = [Path(tempfile.gettempdir()), *([_MEMORY] if _memory_is_usable() else [])]
    for folder in (found for root in roots for found in root.glob(f"{_PREFIX}*")):
        # Gone meanwhile, another user's, or locked: BlockingIOError is the maker's sign of life.
        with contextlib.suppress(OSError):
            if time.time() - folder.lstat().st_mtime >= older_than:
                lock = _locked(folder)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _memory_is_usable() -> bool:
    # Whoever has said where temporary files belong is obeyed.
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK | os.X_OK):
        return False
    return shutil.disk_usage(_MEMORY).free >= _MEMORY_WANTED


def _locked(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _forget_after_fork() -> None:
    # The folders are the original's; a copy that kept the locks open would outlive it with them.
    for lock in _locks.values():
        os.close(lock)
    _locks.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
