"""Clocks that are moved or set back, heartbeats of ticks that take long, and what health says of crons."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest

from redis_cluster_kit import Cluster, FencedError, Registry, Tick
from redis_cluster_kit.clock import MovableClock
from redis_cluster_kit.runtime import CronHost
from redis_cluster_kit.storage import SqlCrons, SqlTicks
from redis_cluster_kit.testing import until
from tests.singleton.test_health import Away

from .conftest import MakeCluster, Rows, at_once, planned, quiet

NEVER_BY_ITSELF = "0 0 1 1 *"


class SetClock(MovableClock):
    """One that can be set back as well, as a server's can."""

    def set_back(self, by: timedelta) -> None:
        self._offset -= by
        self._offset_seconds = self._offset.total_seconds()


class Long:
    """A cron whose ticks go on until they are told to end."""

    def __init__(self, **options: Any) -> None:
        self.ticks: list[Tick] = []
        self.end = anyio.Event()
        self.registry = Registry()
        self.registry.cron(NEVER_BY_ITSELF, name="long", **options)(self.run)

    async def run(self, tick: Tick) -> None:
        self.ticks.append(tick)
        await self.end.wait()


def crons_of(cluster: Cluster) -> CronHost:
    host = cluster.joined_runner().host
    assert host is not None
    assert host.crons is not None
    return host.crons


def advance(cluster: Cluster, clock: MovableClock, by: timedelta) -> None:
    clock.advance(by)
    host = cluster.joined_runner().host
    assert host is not None
    host.clock_moved()


async def test_a_clock_that_is_set_back_repeats_no_instant(make_sqlite_cluster: MakeCluster) -> None:
    ran: list[datetime] = []
    registry = Registry()

    @registry.cron("* * * * * *", name="clock", calculate_next_run_from_previous=True)
    async def clock(tick: Tick) -> None:
        ran.append(tick.scheduled)

    time = SetClock()
    async with make_sqlite_cluster(include=[registry]).with_clock(time) as cluster:
        await until(lambda: len(ran) >= 2, timeout=20, what="ticks")
        before = time.utcnow()
        time.set_back(timedelta(seconds=2))
        await until(lambda: time.utcnow() > before, timeout=20, what="the time is where it was")
        passed = len(ran)
        await until(lambda: len(ran) >= passed + 2, timeout=20, what="ticks again")
        await until(lambda: planned(cluster), what="it is planned")
    instants = sorted(ran)
    assert len(set(instants)) == len(instants)
    assert instants[-1] - instants[0] == timedelta(seconds=len(instants) - 1), "none is missing either"


async def test_a_clock_that_jumps_ahead_and_back_under_another_planner(
    make_sqlite_cluster: MakeCluster,
) -> None:
    """What was planned under the wrong time stays planned: the next runner begins after it."""
    ran: list[datetime] = []
    registry = Registry()

    @registry.cron("* * * * * *", name="clock")
    async def clock(tick: Tick) -> None:
        ran.append(tick.scheduled)

    ahead = SetClock()
    ahead.advance(timedelta(seconds=3))
    async with make_sqlite_cluster(include=[registry]).with_clock(ahead):
        await until(lambda: len(ran) >= 2, timeout=20, what="ticks of a time to come")
    async with make_sqlite_cluster(include=[registry]):
        number = len(ran)
        await until(lambda: len(ran) >= number + 2, timeout=20, what="ticks when the time has come")
    assert ran == sorted(set(ran))


async def test_a_tick_notes_every_30_seconds_that_it_is_alive(make_cluster: MakeCluster, rows: Rows) -> None:
    long, time = Long(), MovableClock()
    async with make_cluster(include=[long.registry]).with_clock(time) as cluster:
        await cluster.crons.trigger("long")
        await until(lambda: long.ticks, timeout=20, what="it runs")

        async def beaten(after: int) -> int:
            ((heartbeat,),) = await rows("SELECT heartbeat FROM rck_cron_instant")
            return int(heartbeat) if heartbeat > after else 0

        first = await until(lambda: beaten(0), what="its beginning is noted")
        advance(cluster, time, timedelta(seconds=31))
        second = await until(lambda: beaten(first), what="a heartbeat")
        assert second - first >= 30_000
        advance(cluster, time, timedelta(seconds=7))
        await long.ticks[0].heartbeat()
        assert await beaten(second) - second >= 7_000
        assert (await cluster.health()).ready
        long.end.set()


async def test_without_a_heartbeat_for_a_minute_a_tick_is_stale_and_the_runner_not_ready(
    make_sqlite_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    long, time = Long(), MovableClock()
    with quiet("redis_cluster_kit.runtime.crons"):
        async with make_sqlite_cluster(include=[long.registry]).with_clock(time) as cluster:
            await cluster.crons.trigger("long")
            await until(lambda: long.ticks, timeout=20, what="it runs")
            away = Away(monkeypatch, SqlTicks, "beat")
            advance(cluster, time, timedelta(seconds=50))
            await until(lambda: away.refused, what="a heartbeat refused")
            assert (await cluster.health()).ready
            advance(cluster, time, timedelta(seconds=11))
            report = await cluster.health()
            assert not report.ready
            assert report.live
            (reason,) = (one for one in report.reasons if "stale" in one)
            assert reason.startswith("cron long: its tick of ")
            assert reason.endswith(" is stale, no heartbeat for 61 s")
            away.is_away = False
            await until(lambda: crons_of(cluster).trouble == "", what="it could note it again")
            assert (await cluster.health()).ready
            long.end.set()


async def test_a_tick_whose_shard_has_another_owner_hears_so(make_cluster: MakeCluster) -> None:
    long = Long()
    async with make_cluster(include=[long.registry]) as cluster:
        await cluster.crons.trigger("long")
        await until(lambda: long.ticks, timeout=20, what="it runs")
        (running,) = crons_of(cluster)._running
        row = running.row
        running.row = row._replace(hold=row.hold._replace(nonce="another"))
        with pytest.raises(FencedError, match="another's"):
            await long.ticks[0].heartbeat()
        running.row = row
        long.end.set()


async def test_a_runner_that_cannot_plan_is_not_ready(
    make_sqlite_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redis_cluster_kit.runtime.crons._LONGEST_SILENCE", 0.5)
    long = Long()
    away = Away(monkeypatch, SqlCrons, "register")
    with quiet("redis_cluster_kit.runtime.cron_planner"):
        async with make_sqlite_cluster(include=[long.registry]) as cluster:
            await until(lambda: away.refused, timeout=20, what="it cannot be registered")
            await until(lambda: crons_of(cluster).trouble, what="it has lasted for too long")
            report = await cluster.health()
            assert not report.ready
            assert any(reason.startswith("crons cannot be planned for ") for reason in report.reasons)
            away.is_away = False
            await until(lambda: planned(cluster), what="it is planned")
            assert (await cluster.health()).ready


async def test_a_cron_that_failed_here_and_is_well_elsewhere_is_reported_no_longer(
    make_cluster: MakeCluster, rows: Rows
) -> None:
    registry = Registry()

    @registry.cron(NEVER_BY_ITSELF, name="shaky", retry=at_once(1))
    async def shaky(tick: Tick) -> None:
        if tick.cluster is failing:
            raise RuntimeError("no")

    with quiet("redis_cluster_kit.runtime.turns"), quiet("redis_cluster_kit.runtime.crons"):
        async with make_cluster(include=[registry]) as failing, make_cluster(include=[registry]) as other:
            counted = crons_of(failing).counters["shaky"]
            well = crons_of(other).counters["shaky"]
            while not counted.failing:
                await failing.crons.trigger("shaky")
                await anyio.sleep(0.05)
            assert "cron shaky is failing: RuntimeError: no" in (await failing.health()).reasons

            async def is_over() -> bool:
                return (await rows("SELECT count(*) FROM rck_cron_instant WHERE status = 'pending'")) == [
                    (0,)
                ]

            await until(is_over, timeout=20, what="all ticks are over")
            done = well.executions
            while well.executions == done:
                await failing.crons.trigger("shaky")
                await anyio.sleep(0.05)
                await until(is_over, timeout=20, what="its end")
            assert counted.failing
            await crons_of(failing).sweeper.look_at_failures()
            assert not counted.failing
            assert not any("shaky" in reason for reason in (await failing.health()).reasons)


async def test_a_clock_that_is_set_ahead_is_noticed_and_makes_no_burst(
    make_sqlite_cluster: MakeCluster,
) -> None:
    """Nobody tells the planner, which sleeps until the next instant it knows."""
    ran: list[datetime] = []
    registry = Registry()

    @registry.cron("0 * * * *", name="hourly")
    async def hourly(tick: Tick) -> None:
        ran.append(tick.scheduled)

    time = SetClock()
    async with make_sqlite_cluster(include=[registry]).with_clock(time) as cluster:
        await until(lambda: planned(cluster), what="it is planned")
        time.advance(timedelta(hours=5))
        hour = time.utcnow().replace(minute=0, second=0, microsecond=0)
        await until(lambda: ran, timeout=15, what="the last hour's")
        (info,) = await cluster.crons.list()
        assert ran == [hour] or ran[-1] == hour + timedelta(hours=1), "or it is a full hour just now"
        assert len(ran) <= 2
        assert info.next[0] == ran[-1] + timedelta(hours=1)


async def test_a_tick_goes_on_saying_that_it_is_alive_when_the_clock_is_set_back(
    make_sqlite_cluster: MakeCluster,
) -> None:
    long, time = Long(), SetClock()
    async with make_sqlite_cluster(include=[long.registry]).with_clock(time) as cluster:
        await cluster.crons.trigger("long")
        await until(lambda: long.ticks, timeout=20, what="it runs")
        (running,) = crons_of(cluster)._running
        before = running.beat_ms
        time.set_back(timedelta(hours=1))
        await until(lambda: running.beat_ms < before, timeout=15, what="a heartbeat by the new time")
        advance(cluster, time, timedelta(seconds=31))
        again = running.beat_ms
        await until(lambda: running.beat_ms >= again + 30_000, timeout=15, what="the next")
        assert (await cluster.health()).ready
        long.end.set()
