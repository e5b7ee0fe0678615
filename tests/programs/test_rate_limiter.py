"""The rate limiter: what it allows, whichever pod is asked, also after the owner was killed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from examples.rate_limiter.bucket import Allowed, Bucket, Limit, Refused, WallClock
from redis_cluster_kit import Cluster, HandlerFailedError
from redis_cluster_kit.testing import instance, local_cluster

ROOT = Path(__file__).parents[2]
LIMIT = Limit(burst=3, per_second=0.5)


class Stopped(WallClock):
    """A clock that stands until the test moves it."""

    def __init__(self) -> None:
        self.time = 1_000.0

    def now(self) -> float:
        return self.time


async def test_tokens_come_back_with_time_and_no_further_than_full() -> None:
    clock = Stopped()
    bucket: Any = instance(Bucket, "key", resources={WallClock: clock})
    assert [await bucket.take(LIMIT) for _ in range(3)] == [Allowed(2), Allowed(1), Allowed(0)]
    assert await bucket.take(LIMIT) == Refused(retry_after=2.0)
    clock.time += 2.0
    assert await bucket.take(LIMIT) == Allowed(0)
    clock.time += 3_600.0
    assert await bucket.left(LIMIT) == 3
    assert await bucket.take(LIMIT, tokens=3) == Allowed(0)
    with pytest.raises(ValueError, match="never"):
        await bucket.take(LIMIT, tokens=4)


async def test_a_clock_that_went_back_neither_gives_nor_takes() -> None:
    clock = Stopped()
    bucket: Any = instance(Bucket, "key", resources={WallClock: clock})
    await bucket.take(LIMIT, tokens=3)
    clock.time -= 100.0
    assert await bucket.take(LIMIT) == Refused(retry_after=2.0)
    clock.time += 102.0
    assert await bucket.take(LIMIT) == Allowed(0)


async def test_another_limit_needs_no_migration() -> None:
    bucket: Any = instance(Bucket, "key", resources={WallClock: Stopped()})
    await bucket.take(LIMIT, tokens=3)
    assert await bucket.take(Limit(burst=10, per_second=1.0)) == Allowed(6)
    assert await bucket.take(Limit(burst=2, per_second=1.0)) == Refused(retry_after=3.0)


async def test_no_pod_allows_more_and_a_takeover_refills_nothing() -> None:
    clock = Stopped()

    @asynccontextmanager
    async def lifespan(cluster: Cluster) -> AsyncGenerator[None]:
        cluster.provide(WallClock, clock)
        yield

    async with local_cluster(pods=2, entities=[Bucket], lifespan=lifespan) as pods:
        await pods.settle()
        answers: list[Allowed | Refused] = []

        async def ask(pod: Cluster) -> None:
            answers.append(await pod.entity(Bucket, "key").take(LIMIT))

        async with anyio.create_task_group() as asking:
            for number in range(10):
                asking.start_soon(ask, pods[number % 2])
        assert sum(isinstance(answer, Allowed) for answer in answers) == LIMIT.burst
        assert len(answers) == 10
        await pods.kill(0 if pods[0].is_local(Bucket, "key") else 1)
        assert await pods[0].entity(Bucket, "key").take(LIMIT) == Refused(retry_after=2.0)
        with pytest.raises(HandlerFailedError, match="never in a bucket"):
            await pods[0].entity(Bucket, "key").take(LIMIT, tokens=4)


def test_the_program_runs() -> None:
    command = [sys.executable, "-W", "error", "-m", "examples.rate_limiter"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"[5-8] requests at once, [0-3] after a wait\n", done.stdout)
