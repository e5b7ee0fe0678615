"""A key-value store in a folder: one file a value, replaced as a whole, one writer at a time by a lock file.

A process killed anywhere leaves each value as it was or as it was to be, and no lock: the kernel lets go of
it. For the processes of one host; a network file system may not keep these promises.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import random
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from redis_cluster_kit.errors import Execution, PersistenceFailedError

from .base import BaseStore
from .contract import VALUE_LIMIT

T = TypeVar("T")

_ENDING = ".kv"
_RETRY_AFTER = (0.0005, 0.003)


class FileStore(BaseStore):
    """Values in the folder `path`, which is made when it is needed.

    A file is named after its key's hash and holds the key, a line break, and the value. `timeout` is how many
    seconds a writer waits for the others.
    """

    def __init__(self, path: str | Path, *, value_limit: int = VALUE_LIMIT, timeout: float = 5.0) -> None:
        super().__init__(value_limit=value_limit)
        self._folder = Path(path)
        self._timeout = timeout
        self._writer = CapacityLimiter(1)

    def __repr__(self) -> str:
        return f"FileStore({str(self._folder)!r})"

    async def _read(self, key: str) -> bytes | None:
        return await _hop(partial(_read_value, self._file(key)))

    async def _write(self, key: str, value: bytes) -> None:
        await self._locked(lambda: self._replace(key, value))

    async def _delete(self, key: str) -> bool:
        def delete() -> bool:
            present = self._file(key).exists()
            self._replace(key, None)
            return present

        return await self._locked(delete)

    async def _swap(self, key: str, before: bytes | None, after: bytes | None) -> bool:
        def swap() -> bool:
            if _read_value(self._file(key)) != before:
                return False
            self._replace(key, after)
            return True

        return await self._locked(swap)

    async def _count(self, prefix: str) -> int:
        return await _hop(lambda: sum(1 for _ in self._files(prefix)))

    async def _wipe(self, prefix: str) -> None:
        def wipe() -> None:
            for file in list(self._files(prefix)):
                file.unlink(missing_ok=True)
            _sync(self._folder)

        await self._locked(wipe)

    # In a thread

    async def _locked(self, do: Callable[[], T]) -> T:
        """Run `do` while nobody else writes; writers of this process queue here and not at the lock."""

        def locked() -> T:
            with self._lock():
                return do()

        return await _hop(locked, self._writer)

    @contextmanager
    def _lock(self) -> Generator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + self._timeout
            while not _taken(lock):
                if time.monotonic() > deadline:
                    raise _failed(
                        Execution.NOT_EXECUTED, f"another process held the lock for {self._timeout:g} s"
                    )
                time.sleep(random.uniform(*_RETRY_AFTER))
            yield
        finally:
            os.close(lock)

    def _file(self, key: str) -> Path:
        return self._folder / (hashlib.blake2b(key.encode(), digest_size=16).hexdigest() + _ENDING)

    def _files(self, prefix: str) -> Iterator[Path]:
        for file in self._folder.glob(f"*{_ENDING}"):
            if not prefix or (_read_key(file) or "").startswith(prefix):
                yield file

    def _replace(self, key: str, value: bytes | None) -> None:
        """Make `value` the file's, or remove it: both are one step of the file system."""
        file = self._file(key)
        if value is None:
            file.unlink(missing_ok=True)
        else:
            # Whoever holds the lock owns this name; what a killed writer left in it is overwritten.
            draft = self._folder / ".writing"
            _write_file(draft, key.encode() + b"\n" + value)
            draft.replace(file)
        try:
            _sync(self._folder)
        except OSError as error:
            raise _failed(Execution.UNKNOWN, str(error), error) from error


async def _hop(do: Callable[[], T], limiter: CapacityLimiter | None = None) -> T:
    try:
        return await to_thread.run_sync(do, limiter=limiter)
    except OSError as error:
        raise _failed(Execution.NOT_EXECUTED, str(error), error) from error


def _failed(execution: Execution, detail: str, cause: OSError | None = None) -> PersistenceFailedError:
    return PersistenceFailedError(store="file", execution=execution, detail=detail, cause=cause)


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_value(file: Path) -> bytes | None:
    try:
        return file.read_bytes().partition(b"\n")[2]
    except FileNotFoundError:
        return None


def _read_key(file: Path) -> str | None:
    with contextlib.suppress(FileNotFoundError), file.open("rb") as opened:
        return opened.readline().rstrip(b"\n").decode()
    return None  # removed meanwhile


def _write_file(file: Path, data: bytes) -> None:
    """Write and wait for the disk: a replacement whose content came later would be empty after a crash."""
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(opened, rest) :]
        os.fsync(opened)
    finally:
        os.close(opened)


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
