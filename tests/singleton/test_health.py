"""Health of singletons: heartbeat, expected interval, no grace after a migration; on a moved clock."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest

from redis_cluster_kit import Cluster, HealthReport, HeartbeatFailedError, Registry, SingletonContext
from redis_cluster_kit.clock import MovableClock
from redis_cluster_kit.errors import PersistenceFailedError
from redis_cluster_kit.storage import SqlMetadata, SqlState
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, leads, quiet


class Moved:
    """A clock that several clusters share, and that wakes them when it is moved."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.clusters: list[Cluster] = []

    def use(self, cluster: Cluster) -> Cluster:
        self.clusters.append(cluster.with_clock(self.clock))
        return cluster

    def advance(self, by: timedelta) -> None:
        self.clock.advance(by)
        for cluster in self.clusters:
            if cluster._runner is not None and cluster._runner.host is not None:
                cluster._runner.host.clock_moved()


@pytest.fixture
def moved() -> Moved:
    return Moved()


async def health(cluster: Cluster, text: str) -> HealthReport:
    """Wait until the singleton's health begins so."""

    async def says() -> Any:
        report = await cluster.health()
        return report.singletons.get("s", "").startswith(text) and report

    found: HealthReport = await until(says, what=f"singleton health {text!r}")
    return found


def idle(**options: Any) -> Registry:
    registry = Registry()

    @registry.singleton("s", **options)
    async def s(ctx: SingletonContext[None]) -> None:
        await anyio.sleep_forever()

    return registry


class Away:
    """Makes a store refuse while it is away."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: Any, method: str) -> None:
        self.is_away = True
        self.refused = 0
        real = getattr(kind, method)

        async def call(*arguments: Any, **named: Any) -> Any:
            if self.is_away:
                self.refused += 1
                raise PersistenceFailedError(store="database", detail="away")
            return await real(*arguments, **named)

        monkeypatch.setattr(kind, method, call)


async def test_a_heartbeat_is_written_every_30_seconds_whatever_the_work(
    make_sqlite_cluster: MakeCluster, moved: Moved
) -> None:
    async with moved.use(make_sqlite_cluster(include=[idle()])) as cluster:
        await leads(cluster)

        async def beaten(after: Any) -> Any:
            metadata = await cluster.singleton_metadata("s", fresh=True)
            return metadata is not None and (after is None or metadata.heartbeat > after) and metadata

        first = await until(lambda: beaten(None), what="a first heartbeat")
        moved.advance(timedelta(seconds=31))
        second = await until(lambda: beaten(first.heartbeat), what="a second heartbeat")
        assert second.heartbeat - first.heartbeat >= timedelta(seconds=30)
        assert (await health(cluster, "ok")).ready


async def test_without_a_heartbeat_for_a_minute_it_is_stale_and_the_runner_not_ready(
    make_sqlite_cluster: MakeCluster, moved: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with moved.use(make_sqlite_cluster(include=[idle()])) as cluster:
        await leads(cluster)
        await health(cluster, "ok")
        away = Away(monkeypatch, SqlMetadata, "note")
        moved.advance(timedelta(seconds=59))
        await until(lambda: away.refused, what="a heartbeat refused")
        assert (await health(cluster, "ok")).ready
        assert cluster.joined_runner().read().singletons_unhealthy == 0
        moved.advance(timedelta(seconds=2))
        report = await health(cluster, "stale, no heartbeat for 61 s: singleton 's': its heartbeat")
        assert not report.ready
        assert cluster.joined_runner().read().singletons_unhealthy == 1
        assert report.live
        assert any(reason.startswith("singleton s: stale") for reason in report.reasons)
        counters = cluster.joined_runner().host.singletons.counters["s"]  # type: ignore[union-attr]
        await until(lambda: counters.errors["HeartbeatFailed"] == away.refused, what="all are counted")
        away.is_away = False
        assert (await health(cluster, "ok")).ready


async def test_without_an_execution_for_twice_the_expected_interval_it_is_not_ready(
    make_sqlite_cluster: MakeCluster, moved: Moved
) -> None:
    proceed, done = anyio.Event(), anyio.Event()
    registry = Registry()

    @registry.singleton("s", expected_interval=timedelta(seconds=100))
    async def s(ctx: SingletonContext[None]) -> None:
        async for _ in ctx.every(timedelta(seconds=1000)):
            if proceed.is_set():
                break
            await proceed.wait()
            done.set()

    async with moved.use(make_sqlite_cluster(include=[registry])) as cluster:
        await leads(cluster)
        moved.advance(timedelta(seconds=190))
        assert (await health(cluster, "ok")).ready
        moved.advance(timedelta(seconds=20))
        report = await health(cluster, "no execution for 2")
        assert "expected every 100 s" in report.singletons["s"]
        assert not report.ready
        proceed.set()
        await until(done.is_set, what="a round ends")
        assert (await health(cluster, "ok")).ready


async def test_there_is_no_grace_after_a_migration(make_sqlite_cluster: MakeCluster, moved: Moved) -> None:
    """What counts is the last execution, whoever led then; a new leader inherits how late it is."""
    interval = timedelta(seconds=100)
    async with moved.use(make_sqlite_cluster(include=[idle(expected_interval=interval)])) as first:
        await leads(first)

        async def since() -> Any:
            return await first.singleton_metadata("s", fresh=True)

        await until(since, what="its beginning is noted")
        assert (await health(first, "ok")).ready
    moved.advance(timedelta(seconds=201))
    async with moved.use(make_sqlite_cluster(include=[idle(expected_interval=interval)])) as second:
        report = await health(second, "no execution for 20")
        assert not report.ready


async def test_rounds_follow_the_moved_clock_and_missed_ones_are_skipped(
    make_sqlite_cluster: MakeCluster, moved: Moved
) -> None:
    rounds: list[float] = []
    registry = Registry()

    @registry.singleton("s")
    async def s(ctx: SingletonContext[None]) -> None:
        async for now in ctx.every(timedelta(hours=1)):
            rounds.append(now.timestamp())  # noqa: PERF401 - one by one is the point

    async with moved.use(make_sqlite_cluster(include=[registry])):
        await until(lambda: len(rounds) == 1, what="the first round, at once")
        moved.advance(timedelta(hours=1))
        await until(lambda: len(rounds) == 2, what="the second round")
        moved.advance(timedelta(hours=5, minutes=30))
        await until(lambda: len(rounds) == 3, what="one round for five missed ones")
        moved.advance(timedelta(minutes=29))
        moved.advance(timedelta(minutes=2))
        await until(lambda: len(rounds) == 4, what="the round of the seventh hour")
    assert [round((late - rounds[0]) / 60) for late in rounds] == [0, 60, 390, 421]


async def test_ctx_heartbeat_says_if_it_could_not(
    make_sqlite_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[HeartbeatFailedError] = []
    registry = Registry()

    @registry.singleton("s")
    async def s(ctx: SingletonContext[None]) -> None:
        await ctx.heartbeat()
        away = Away(monkeypatch, SqlMetadata, "note")
        try:
            await ctx.heartbeat()
        except HeartbeatFailedError as error:
            failed.append(error)
        away.is_away = False
        await ctx.heartbeat()

    async with make_sqlite_cluster(include=[registry]) as cluster:
        await until(lambda: bool(failed), what="a heartbeat refused")
        assert failed[0].singleton_name == "s"
        assert "away" in str(failed[0])
        await health(cluster, "ok")


async def test_a_state_that_cannot_be_loaded_keeps_it_from_being_ready(
    make_sqlite_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Away(monkeypatch, SqlState, "read")
    begun = anyio.Event()
    registry = Registry()

    @registry.singleton("s", state=dict)
    async def s(ctx: SingletonContext[dict[str, int]]) -> None:
        begun.set()

    with quiet():
        async with make_sqlite_cluster(include=[registry]) as cluster:
            report = await health(cluster, "singleton 's': its state could not be read")
            assert not report.ready
            assert not begun.is_set()
            away.is_away = False
            await until(begun.is_set, what="it begins")
            assert (await health(cluster, "ok")).ready
            counters = cluster.joined_runner().host.singletons.counters["s"]  # type: ignore[union-attr]
            assert counters.errors == {"StateLoadFailed": away.refused}
