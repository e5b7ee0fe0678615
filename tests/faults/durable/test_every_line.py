"""A workflow killed at every line and around every call of a store: another pod brings it to the same end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import ChildExitedError, ChildProcess

pytestmark = pytest.mark.faults

PROGRAM = f"{Path(__file__).with_name('workflow.py')}:main"
END = ["begun 0", "approved True", "parcel from place of 17, paid 500"]
PATIENCE = 40.0
AT_ONCE = 6


class Scene:
    """One workflow of its own: its namespace, database and files."""

    def __init__(self, redis: str, folder: Path, namespace: str, number: int) -> None:
        self.folder = folder / str(number)
        self.folder.mkdir()
        self.number = number
        self._options = {
            "redis": redis,
            "database": f"sqlite+aiosqlite:///{self.folder / 'cluster.db'}",
            "namespace": f"{namespace}.{number}"[-64:],
            "log": str(self.folder / "log"),
            "tokens": str(self.folder / "token"),
        }

    async def play(self) -> list[str]:
        """Let one pod die at its checkpoint, another end the work; return what the log says."""
        if self.number:
            await self._pod(self.number)
        done = await self._pod(0)
        assert done["result"] == done["seen"] == END, self.log
        self.passed = done["passed"]
        return self.log

    async def _pod(self, die_at: int) -> Any:
        options = json.dumps(self._options | {"die_at": die_at})
        async with ChildProcess(PROGRAM, options, name=f"pod-{self.number}-{die_at}") as pod:
            if not die_at:
                return await pod.wait_for("done", timeout=PATIENCE)
            with contextlib.suppress(ChildExitedError):
                await pod.wait_for("done", timeout=PATIENCE)
            assert await pod.wait() == 137
        return None

    @property
    def log(self) -> list[str]:
        return (self.folder / "log").read_text().splitlines()

    def rows(self) -> tuple[int, int]:
        connection = sqlite3.connect(self.folder / "cluster.db")
        try:
            return tuple(
                connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in ("rck_step", "rck_execution")
            )  # type: ignore[return-value]
        finally:
            connection.close()


def _judge(log: list[str]) -> str:
    """A step is run again only if its runner died before its result was recorded."""
    died = next((line.removeprefix("died ") for line in log if line.startswith("died ")), "")
    for step in ("reserve", "charge", "ship"):
        unrecorded = died in (f"{step} ends", f"before record {step}")
        assert log.count(f"ran {step}") == 1 + unrecorded, (died, log)
    return died


async def test_a_workflow_killed_at_every_line_has_the_same_end(
    valkey: RedisServer, tmp_path: Path, namespace: str
) -> None:
    control = Scene(valkey.url, tmp_path, namespace, 0)
    _judge(await control.play())
    turns = asyncio.Semaphore(AT_ONCE)
    deaths: list[str] = []

    async def one(number: int) -> None:
        async with turns:
            scene = Scene(valkey.url, tmp_path, namespace, number)
            died = _judge(await scene.play())
            deaths.append(died)
            # Between the commit and the deletion behind it: the rows go when their retention has passed.
            assert scene.rows() == (0, 0) or died in ("after commit", "before forget", "after forget"), died

    last = control.passed - 4  # the deletion behind the turn races with the end: there the pod may be done
    async with anyio.create_task_group() as tasks:
        for number in range(1, last + 1):
            tasks.start_soon(one, number)
    assert len(deaths) == last >= 30
    lines = {"handler begins", "charge ends", "before record charge", "after record charge", "before park"}
    lines |= {"after park", "after record cool down", "before commit", "after commit", "shipped"}
    assert lines <= set(deaths)
