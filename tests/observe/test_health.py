"""Health: a runner that connects and consumes nothing, one whose loop is blocked, and those that are well."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from redis_cluster_kit import Cluster, Entity, HealthReport, HealthSettings, Settings, ShardSettings, rpc
from redis_cluster_kit.clock import MovableClock
from redis_cluster_kit.observe import Watchdog
from redis_cluster_kit.runtime import RuntimeCounters
from redis_cluster_kit.runtime.progress import Progress
from redis_cluster_kit.runtime.shard_host import ShardHost
from redis_cluster_kit.testing import until

CALM = HealthSettings(loop_stall=timedelta(seconds=20))


class Account(Entity[None], name="account"):
    release: asyncio.Event

    @rpc
    async def ping(self) -> str:
        return "pong"

    @rpc
    async def wait(self) -> None:
        await self.resource(asyncio.Event).wait()


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def cluster(valkey: Any, sqlite_url: str, namespace: str, clock: MovableClock) -> Cluster:
    settings = Settings(shards=ShardSettings(per_group=4), health=CALM)
    return Cluster(
        valkey.url, sqlite_url, namespace=namespace, entities=[Account], settings=settings
    ).with_clock(clock)


async def ready(cluster: Cluster) -> HealthReport | None:
    report = await cluster.health()
    return report if report.ready else None


def progress_of(cluster: Cluster) -> Progress:
    host = cluster.joined_runner().host
    assert host is not None
    return host.progress


async def test_nothing_consumed_although_a_mailbox_is_not_empty(
    cluster: Cluster, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster:
        assert await cluster.entity(Account, "a").ping() == "pong"
        await until(lambda: ready(cluster), what="ready")
        with monkeypatch.context() as broken:
            broken.setattr(ShardHost, "activate", lambda *_: None)  # connected, and deaf
            receipt = await cluster.entity(Account, "b").ping.send()
            shard = str(cluster.shard_of(Account, "b"))
            await until(lambda: shard in progress_of(cluster)._waiting, what="the poll to see it")
            assert (await cluster.health()).ready, "a minute is given"
            clock.advance(timedelta(seconds=90))
            report = await cluster.health()
            assert not report.ready
            assert report.live
            assert any(reason.startswith("nothing was consumed for 9") for reason in report.reasons)
        assert await receipt.result() == "pong"
        await until(lambda: ready(cluster), what="ready again")


async def test_a_long_turn_is_no_standstill(cluster: Cluster, clock: MovableClock) -> None:
    async with cluster:
        release = asyncio.Event()
        cluster.provide(asyncio.Event, release)
        await until(lambda: ready(cluster), what="ready")
        alice = cluster.entity(Account, "alice")
        receipts = [await alice.wait.send(), await alice.wait.send()]
        host = cluster.joined_runner().host
        assert host is not None
        await until(
            lambda: any(one.in_hand for one in host.residents.of_type("account")), what="a turn begun"
        )
        await cluster.poll()
        clock.advance(timedelta(hours=1))
        await cluster.poll()
        assert (await cluster.health()).ready
        release.set()
        for receipt in receipts:
            await receipt.result()


def test_progress_by_a_clock_that_is_moved() -> None:
    counters, now = RuntimeCounters(), 1000.0
    progress = Progress(counters, lambda: now)
    assert progress.stuck_for == 0
    progress.saw("g:1", is_waiting=True)
    now += 50
    assert progress.stuck_for == 50
    progress.saw("g:2", is_waiting=True)
    assert progress.stuck_for == 50, "the oldest counts"
    counters.failures += 1
    assert progress.stuck_for == 0, "something came to an end"
    progress.saw("g:2", is_waiting=True)
    now += 10
    assert progress.stuck_for == 10
    progress.saw("g:1", is_waiting=False)
    assert progress.stuck_for == 10
    progress.left("g:2")
    progress.left("g:2")
    assert progress.stuck_for == 0


async def test_the_watchdog_sees_a_blocked_loop_and_forgets_it() -> None:
    settings = HealthSettings(
        loop_stall=timedelta(seconds=0.2), loop_dead=timedelta(seconds=0.6), stall_memory=timedelta(seconds=1)
    )
    watchdog = Watchdog(settings)
    assert (watchdog.trouble, watchdog.is_alive, watchdog.is_blocked) == ("", True, False)
    with watchdog.watching():
        await until(lambda: watchdog.lag > 0, what="a first answer")
        assert watchdog.loop is asyncio.get_running_loop()
        over = time.monotonic() + 10
        while watchdog.is_alive and time.monotonic() < over:
            time.sleep(0.01)  # the loop does not turn meanwhile
        assert not watchdog.is_alive
        assert watchdog.is_blocked
        assert "has been blocked for 0." in watchdog.trouble
        await until(lambda: watchdog.is_alive and not watchdog.is_blocked, what="an answer")
        assert "was blocked for" in watchdog.trouble
        await until(lambda: not watchdog.trouble, what="the stall forgotten")
    assert not [thread for thread in threading.enumerate() if thread.name == "rck-watchdog"]


async def test_a_stall_makes_it_unready_for_a_while(valkey: Any, sqlite_url: str, namespace: str) -> None:
    health = HealthSettings(loop_stall=timedelta(seconds=1), stall_memory=timedelta(seconds=1))
    settings = Settings(shards=ShardSettings(per_group=4), health=health)
    async with Cluster(
        valkey.url, sqlite_url, namespace=namespace, entities=[Account], settings=settings
    ) as cluster:
        await until(lambda: ready(cluster), what="ready")
        watchdog = cluster.joined_runner().watchdog
        while not watchdog.is_blocked:
            time.sleep(0.01)
        report = await cluster.health()
        assert (report.ready, report.live) == (False, True)
        assert any("the event loop" in reason for reason in report.reasons)
        await until(lambda: ready(cluster), what="ready again")
