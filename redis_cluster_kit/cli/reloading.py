"""Notices that Python files under a folder have changed, for `rck run --reload`. It looks again and again."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import anyio.to_thread

_EVERY = 0.5


async def changed_files(folder: Path, every: float = _EVERY) -> AsyncIterator[str]:
    """Yield the name of a file each time some were changed, added or removed; one look may find several."""
    before = await anyio.to_thread.run_sync(_stamps, folder)
    while True:
        await anyio.sleep(every)
        now = await anyio.to_thread.run_sync(_stamps, folder)
        changed = [path for path in before.keys() | now.keys() if before.get(path) != now.get(path)]
        before = now
        if changed:
            yield str(min(changed).relative_to(folder))


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    """Each file's time and size: a write within the clock's grain still changes the size, mostly."""
    found: dict[Path, tuple[int, int]] = {}
    for path in _python_files(folder):
        try:
            status = path.stat()
        except OSError:
            continue  # removed since
        found[path] = (status.st_mtime_ns, status.st_size)
    return found


def _python_files(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        here = Path(root)
        folders[:] = [
            name for name in folders if name[0] not in "._" and not (here / name / "pyvenv.cfg").exists()
        ]
        yield from (here / name for name in names if name.endswith(".py"))
