"""Pods with a singleton, each a process of its own, on a shared Valkey and either database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.settings import DatabaseSettings
from redis_cluster_kit.storage import Database, SqlState, StoredState
from redis_cluster_kit.testing import ChildEvent, ChildProcess, until

PROGRAM = f"{Path(__file__).parent / 'pod.py'}:main"
PATIENCE = 20.0
"""How long a test waits for what must happen: a guard against hanging, on a machine that has other work."""


_TTL = timedelta(seconds=5)


class Pods:
    """Some pods of one cluster."""

    def __init__(self, pods: list[ChildProcess], database: str, namespace: str) -> None:
        self.pods = pods
        self._database = database
        self._namespace = namespace

    async def leader(self, *, after: float = 0.0) -> tuple[ChildProcess, ChildEvent]:
        """Wait until one of those alive has led and saved, from that time on; return it and its beginning."""

        def found() -> tuple[ChildProcess, ChildEvent] | None:
            for pod in self.pods:
                told = [event for event in pod.events if event.name in ("leading", "saved", "lost")]
                begun = [event for event in told if event.name == "leading" and event.t_boot > after]
                if begun and told[-1].name == "saved" and told[-1]["fence"] == begun[-1]["fence"]:
                    return pod, begun[-1]
            return None

        led = await until(found, timeout=PATIENCE, what="one of them leads and saves")
        assert led is not None
        return led

    async def saved(self, beyond: int) -> int:
        """Wait until somebody was told that a state beyond this one is safe; return the newest."""
        return await until(
            lambda: (
                max([event["seen"] for event in acknowledged(self.pods)], default=0) > beyond
                and max(event["seen"] for event in acknowledged(self.pods))
            ),
            timeout=PATIENCE,
            what=f"a state beyond {beyond}",
        )

    def without(self, pod: ChildProcess) -> None:
        """Expect nothing of this one any more."""
        self.pods.remove(pod)

    async def stored(self) -> StoredState:
        """What the database has."""
        async with Database(self._database, DatabaseSettings(), ttl=_TTL) as database:
            found = await SqlState(database, self._namespace).read("counter", timeout=5)
        assert found is not None
        return found


OpenPods = Callable[..., AbstractAsyncContextManager[Pods]]


def acknowledged(pods: list[ChildProcess]) -> list[ChildEvent]:
    """Every state write that any of them was told is safe."""
    return [event for pod in pods for event in pod.events if event.name == "saved"]


def opener(redis: str, namespace: str) -> Any:
    @asynccontextmanager
    async def open_pods(number: int, database: str, **more: Any) -> AsyncGenerator[Pods]:
        options = json.dumps(
            {"redis": redis, "database": database, "namespace": namespace, "pods": number, **more}
        )
        async with AsyncExitStack() as stack:
            pods = [ChildProcess(PROGRAM, options, name=f"pod-{place}") for place in range(number)]
            await asyncio.gather(*(stack.enter_async_context(pod) for pod in pods))
            await asyncio.gather(*(pod.wait_for("settled", timeout=PATIENCE) for pod in pods))
            yield Pods(pods, database, namespace)

    return open_pods


@pytest.fixture
def open_pods(valkey: RedisServer, namespace: str) -> OpenPods:
    """Open so many pods on a database; they are gone at the end of the block."""
    return opener(valkey.url, namespace)  # type: ignore[no-any-return]
