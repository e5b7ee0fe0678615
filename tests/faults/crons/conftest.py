"""Pods with a cron, each a process of its own, and the check that every instant had one tick."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.settings import DatabaseSettings
from redis_cluster_kit.storage import Database
from redis_cluster_kit.testing import ChildEvent, ChildProcess, until

PROGRAM = f"{Path(__file__).parent / 'pod.py'}:main"
PATIENCE = 30.0
"""How long a test waits for what must happen: a guard against hanging, on a machine that has other work."""

OnePerInstant = Callable[..., Awaitable[int]]


class Pods:
    """The pods of one cluster, those that ended too."""

    def __init__(self, options: dict[str, Any], stack: AsyncExitStack) -> None:
        self.options = options
        self.alive: list[ChildProcess] = []
        self.all: list[ChildProcess] = []
        self._stack = stack

    async def start(self, **more: Any) -> ChildProcess:
        """Start one more and wait until it has joined."""
        pythonpath = more.pop("pythonpath", ())
        child = ChildProcess(
            PROGRAM, json.dumps(self.options | more), name=f"pod-{len(self.all)}", pythonpath=pythonpath
        )
        await self._stack.enter_async_context(child)
        self.all.append(child)
        self.alive.append(child)
        await child.wait_for("joined", timeout=PATIENCE)
        return child

    async def kill(self, pod: ChildProcess) -> None:
        """SIGKILL."""
        self.alive.remove(pod)
        await pod.kill()

    async def planner(self) -> ChildProcess:
        """Wait until one of those alive plans; return it."""

        def found() -> ChildProcess | None:
            for pod in self.alive:
                told = [event.name for event in pod.events if event.name.startswith("plans")]
                if told and told[-1] == "plans":
                    return pod
            return None

        planning = await until(found, timeout=PATIENCE, what="one of them plans")
        assert planning is not None
        return planning

    def told(self, name: str) -> list[ChildEvent]:
        """What all of them said, by time."""
        return sorted(
            (event for pod in self.all for event in pod.events if event.name == name),
            key=lambda event: event.t_boot,
        )

    def ran(self) -> set[str]:
        """The instants that ran to their end."""
        return {event["at"] for event in self.told("ran")}

    async def more(self, number: int) -> None:
        """Wait until so many more instants have run."""
        before = len(self.ran())
        await until(lambda: len(self.ran()) >= before + number, timeout=PATIENCE, what=f"{number} more ticks")

    async def rows(self) -> dict[str, str]:
        """The status of every instant, as the database has it."""
        async with Database(
            self.options["database"], DatabaseSettings(), ttl=timedelta(seconds=5)
        ) as database:
            query = text("SELECT scheduled, status FROM rck_cron_instant ORDER BY scheduled")
            found = await database.read(lambda c: c.execute(query).all(), timeout=5)
        return {datetime.fromtimestamp(row.scheduled / 1000, UTC).isoformat(): row.status for row in found}

    async def nothing_pending(self) -> bool:
        """Whether every instant that was planned is over."""
        return "pending" not in (await self.rows()).values()

    async def check(self, *, each: bool = True) -> int:
        """See that each instant had one tick; return how many there were.

        An attempt is begun once: a second beginning of the same attempt would be a second tick. And nothing
        begins again that has come to its end, unless its pod died before it could say so.
        """
        begun = Counter((event["at"], event["attempt"]) for event in self.told("began"))
        assert [one for one, count in begun.items() if count > 1] == []
        ended = Counter(event["at"] for event in self.told("ran"))
        assert [at for at, count in ended.items() if count > 1 and not self._was_cut(at)] == []
        rows = await self.rows()
        assert set(begun) <= {(at, attempt) for at in rows for attempt in range(1, 20)}
        if each:
            instants = [datetime.fromisoformat(at) for at in rows]
            assert instants[-1] - instants[0] == timedelta(seconds=len(instants) - 1), "no instant is missing"
        assert {at for at, status in rows.items() if status == "done"} <= set(ended)
        return len(rows)

    def _was_cut(self, at: str) -> bool:
        """Whether a pod that ran it was killed or stopped: it may not have been able to say so."""
        return any(
            event.name == "ran" and event["at"] == at
            for pod in self.all
            if pod.returncode != 0 or pod.signals[:-1]
            for event in pod.events
        )

    async def end(self) -> None:
        """Ask those alive to go, in order."""
        for pod in list(self.alive):
            pod.terminate()
        for pod in list(self.alive):
            assert await pod.wait() == 0
            self.alive.remove(pod)


@pytest.fixture
async def make_pods(namespace: str) -> AsyncIterator[Callable[[str, str], Pods]]:
    """Make a cluster's pods, on this Redis and this database."""
    async with AsyncExitStack() as stack:

        def make(redis: str, database: str, **options: Any) -> Pods:
            shared = {"redis": redis, "database": database, "namespace": namespace}
            return Pods(shared | options, stack)

        yield make


@pytest.fixture
def pods(valkey: RedisServer, database_url: str, make_pods: Callable[..., Pods]) -> Pods:
    """On the shared Valkey, and either database."""
    return make_pods(valkey.url, database_url)
