"""Scenes: a pod dies at one checkpoint, the next pod brings its work to an end; many at once."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from redis_cluster_kit.testing import ChildProcess, Seeds

ROOT = Path(__file__).parents[3]
PATIENCE = 90.0
AT_ONCE = 12
_TRIES = 5
_NUMBERS = itertools.count(1)


class Stem:
    """The process that pods are forked from."""

    def __init__(self, child: ChildProcess, options: dict[str, Any], folder: Path, namespace: str) -> None:
        self.folder, self.namespace = folder, namespace
        self._child = child
        self._options = options

    @classmethod
    @asynccontextmanager
    async def start(
        cls, options: dict[str, Any], folder: Path, namespace: str, *, kit: Path | None = None
    ) -> AsyncGenerator[Stem]:
        """Start it, on another copy of the kit perhaps; `options` go to all of its pods."""
        paths = [ROOT] if kit is None else [kit, ROOT]
        async with ChildProcess("tests.faults.durable.stem:main", pythonpath=paths) as child:
            yield cls(child, options, folder, namespace)

    async def pod(self, **options: Any) -> int:
        """Let a pod live and die; return its exit code."""
        await self._child.send(self._options | options)
        ended = await self._child.wait_for("ended", timeout=PATIENCE, pod=options["pod"])
        code: int = ended["code"]
        assert code in (0, -signal.SIGKILL), self._child.tail
        return code


@dataclass
class Scene:
    """What became of a namespace in which one pod died."""

    folder: Path
    died: str
    """Where; empty: nowhere."""
    end: Any
    passed: list[str]
    """By the pod that brought it to its end."""

    @property
    def log(self) -> list[str]:
        return (self.folder / "log").read_text().splitlines()

    def count(self, table: str) -> int:
        connection = sqlite3.connect(self.folder / "cluster.db")
        try:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
        finally:
            connection.close()


async def play(stem: Stem, die_at: str) -> Scene:
    """Let a pod die at a checkpoint, and prove it; let another one end its work. Empty: nobody dies."""
    for _ in range(_TRIES):
        number = next(_NUMBERS)
        folder = stem.folder / str(number)
        folder.mkdir()
        database = f"sqlite+aiosqlite:///{folder / 'cluster.db'}"
        place = {"folder": str(folder), "database": database, "namespace": f"{stem.namespace}.{number}"}
        last = f"{number} first"
        code = await stem.pod(pod=last, die_at=die_at, **place)
        if die_at and code == 0:
            continue  # what runs beside the program came in another order, and it never came there
        if die_at:
            assert f"died {die_at}" in (folder / "log").read_text().splitlines()
            last = f"{number} second"
            assert await stem.pod(pod=last, die_at=None, **place) == 0
        return Scene(folder, die_at, **json.loads((folder / f"{last}.json").read_text()))
    raise AssertionError(f"no pod came to {die_at!r} in {_TRIES} scenes")


async def play_all(stem: Stem, marks: Sequence[str], judge: Callable[[Scene], None]) -> None:
    """Play a scene for each checkpoint, several at once."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(mark: str) -> None:
        async with turns:
            judge(await play(stem, mark))

    async with anyio.create_task_group() as tasks:
        for mark in marks:
            tasks.start_soon(one, mark)


def label_of(mark: str) -> str:
    """Return what a checkpoint is called in all its passes."""
    return mark.rpartition(" #")[0]


def chosen(passed: Sequence[str], seeds: Seeds, *, all: bool) -> list[str]:
    """Return where pods are to die: at every checkpoint, in one of the runs that pass it; `all`: in each."""
    if all:
        return list(passed)
    by_label: dict[str, list[str]] = {}
    for mark in passed:
        by_label.setdefault(label_of(mark), []).append(mark)
    return [seeds.random("occurrence", label).choice(marks) for label, marks in by_label.items()]
