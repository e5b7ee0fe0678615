"""A pod in a process of its own with a cron that comes every second and says when it ran.

Commands name the moment at which the pod kills itself: `between` a row and its message, `sent` (that too, but
the instant has not come), `after done` and before the commit of a tick's turn, `inside` a tick. The option
`skew` sets its clock off by so many seconds, `ahead` says how many milliseconds ahead it plans.
"""

from __future__ import annotations

import json
import os
import signal
import time
import warnings
from datetime import timedelta
from typing import Any

import anyio

from redis_cluster_kit import (
    Cluster,
    LeaseSettings,
    Registry,
    Retry,
    Settings,
    ShardSettings,
    ShortLeaseWarning,
    Tick,
    current,
)
from redis_cluster_kit.runtime import cron_planner
from redis_cluster_kit.runtime.commit import Committer
from redis_cluster_kit.runtime.cron_planner import CronPlanner
from redis_cluster_kit.settings import DatabaseSettings
from redis_cluster_kit.testing import commands, emit


def die(where: str, **more: object) -> None:
    """End as if somebody else had killed it."""
    emit("dying", where=where, **more)
    os.kill(os.getpid(), signal.SIGKILL)


class Pod:
    """What the cron is told by the test."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.orders: set[str] = set()
        self.takes = given.get("takes", 0.0)
        self.registry = Registry()
        self.registry.cron(
            given.get("expression", "* * * * * *"),
            name="clock",
            calculate_next_run_from_previous=given.get("each", True),
            retry=Retry(base=timedelta(milliseconds=10), max_attempts=20),
        )(self.run)

    async def run(self, tick: Tick) -> None:
        emit("began", at=tick.scheduled.isoformat(), attempt=tick.attempt, fence=tick.fence)
        if "inside" in self.orders:
            die("inside")
        await anyio.sleep(self.takes)
        assert current().is_leader
        emit("ran", at=tick.scheduled.isoformat(), attempt=tick.attempt)

    async def obey(self) -> None:
        async for order in commands():
            self.orders.add(order)
            emit("heard", order=order)

    def set_traps(self) -> None:
        """Die at the moments that are asked for."""
        send, commit = CronPlanner._send, Committer.commit

        async def send_or_die(planner: CronPlanner, places: Any, *, again: bool = False) -> None:
            if places and not again and "between" in self.orders:
                die("between")
            await send(planner, places, again=again)
            if places and not again and "sent" in self.orders:
                (place,) = places
                die("sent", at=place.entity_id, early=place.scheduled - planner._clock.now_ms())

        async def commit_or_die(committer: Committer, member: str, *args: Any, **kwargs: Any) -> Any:
            if member.startswith("cron.") and "after done" in self.orders:
                die("after done")
            return await commit(committer, member, *args, **kwargs)

        CronPlanner._send = send_or_die  # type: ignore[method-assign]
        Committer.commit = commit_or_die  # type: ignore[method-assign]


async def say_what_it_plans(cluster: Cluster) -> None:
    was = False
    while True:
        host: Any = cluster.joined_runner().host
        plans = "clock" in host.crons.planner.planned
        if plans != was:
            emit("plans" if plans else "plans no more", fence=plans and _fence(host))
        was = plans
        await anyio.sleep(0.02)


def _fence(host: Any) -> int:
    fence: int = host.crons.planner.planned["clock"].owned.fence
    return fence


async def main(options: str) -> None:
    given = json.loads(options)
    warnings.simplefilter("ignore", ShortLeaseWarning)
    if given.get("skew"):
        right = time.time
        time.time = lambda: right() + given["skew"]
    settings = Settings(
        lease=LeaseSettings(ttl=timedelta(seconds=1)),
        shards=ShardSettings(per_group=4),
        database=DatabaseSettings(statement_timeout=timedelta(milliseconds=900)),
    )
    cron_planner.AHEAD_MS = given.get("ahead", cron_planner.AHEAD_MS)
    pod = Pod(given)
    pod.set_traps()
    cluster = Cluster(
        given["redis"],
        given["database"],
        namespace=given["namespace"],
        settings=settings,
        include=[pod.registry],
    )
    async with cluster, anyio.create_task_group() as tasks:
        tasks.start_soon(pod.obey)
        tasks.start_soon(say_what_it_plans, cluster)
        emit("joined", runner=cluster.runner_id, clock=time.time())
        await cluster.run_forever()
        tasks.cancel_scope.cancel()
    emit("left")
