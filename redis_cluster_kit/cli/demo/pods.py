"""The demo's runners: processes of their own, started, killed and stopped here; `hosting` runs in them."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import anyio

from redis_cluster_kit.cli.commands import CannotError
from redis_cluster_kit.testing import ChildExitedError, ChildProcess, NoEventError

State = Literal["starting", "serving", "killed", "leaving", "left"]
_SERVE = f"{__package__}.hosting:serve"
_START_WITHIN = 20.0
_LEAVE_WITHIN = 15.0


@dataclass(slots=True)
class Pod:
    """One runner's process. `ended` is when it was killed or told to go, on the boot clock."""

    number: int
    child: ChildProcess
    runner: str = ""
    state: State = "starting"
    ended: float | None = None

    @property
    def name(self) -> str:
        """What the demo calls it."""
        return f"pod-{self.number}"


class Pods:
    """All pods of a demo; `async with` ends those that are left."""

    def __init__(self, redis: str, database: str, ttl: timedelta) -> None:
        self._options = {"redis": redis, "database": database, "ttl": ttl.total_seconds()}
        self._stack = AsyncExitStack()
        self.all: list[Pod] = []

    async def __aenter__(self) -> Pods:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    @property
    def serving(self) -> list[Pod]:
        """Those that should own shards now."""
        return [pod for pod in self.all if pod.state == "serving"]

    def by_runner(self) -> dict[str, Pod]:
        """Return the pods that have joined, by runner id."""
        return {pod.runner: pod for pod in self.all if pod.runner}

    async def start(self, count: int = 1) -> list[Pod]:
        """Start pods at once and return them when all have joined."""
        started = [self._make() for _ in range(count)]
        for pod in started:
            await self._stack.enter_async_context(pod.child)
        for pod in started:
            try:
                joined = await pod.child.wait_for("joined", timeout=_START_WITHIN)
            except (ChildExitedError, NoEventError) as error:
                raise CannotError(f"{pod.name} did not join: {error}") from error
            pod.runner, pod.state = joined["runner"], "serving"
        return started

    async def kill(self, pod: Pod) -> float:
        """SIGKILL a pod; return when, on the boot clock."""
        record = await pod.child.kill()
        pod.state, pod.ended = "killed", record.sent
        return record.sent

    async def stop(self, pod: Pod) -> bool:
        """SIGTERM a pod and wait until it is gone; return whether it left in order."""
        pod.state, pod.ended = "leaving", pod.child.terminate().sent
        try:
            code = await pod.child.wait(timeout=_LEAVE_WITHIN)
        except NoEventError:
            return False
        pod.state = "left"
        return code == 0

    async def stop_all(self) -> bool:
        """SIGTERM all that serve at once; return whether all left in order."""
        orderly: list[bool] = []

        async def stop(pod: Pod) -> None:
            orderly.append(await self.stop(pod))

        async with anyio.create_task_group() as tasks:
            for pod in self.serving:
                tasks.start_soon(stop, pod)
        return all(orderly)

    def _make(self) -> Pod:
        number = len(self.all) + 1
        options = {**self._options, "name": f"pod-{number}"}
        pod = Pod(number, ChildProcess(_SERVE, json.dumps(options), name=f"pod-{number}"))
        self.all.append(pod)
        return pod
