"""Which instants get a tick: downtime, changed expressions, overlap, breakers, pauses, other pods' crons."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from redis_cluster_kit import CircuitBreaker, CronInfo, Registry, Tick
from redis_cluster_kit.testing import Pods, local_cluster, until

from .conftest import MakeCluster, Rows, at_once, planned, quiet

HOUR = timedelta(hours=1)


class Log:
    """A cron that notes its instants."""

    def __init__(self, expression: str = "*/10 * * * *", **options: Any) -> None:
        self.ran: list[datetime] = []
        self.registry = Registry()
        self.registry.cron(expression, name="log", **options)(self.run)
        self.error: Exception | None = None
        self.go_on = anyio.Event()
        self.go_on.set()

    async def run(self, tick: Tick) -> None:
        self.ran.append(tick.scheduled)
        await self.go_on.wait()
        if self.error is not None:
            raise self.error


async def info(pods: Any) -> CronInfo:
    (found,) = await pods[0].crons.list()
    return found  # type: ignore[no-any-return]


async def step(pods: Pods, by: timedelta) -> None:
    """Move the time on, and wait until what came due has run."""
    await pods.clock.advance(by)
    await pods.settle()


async def to_the_hour(pods: Pods) -> datetime:
    """Go to one minute past the next full hour."""
    now = pods.clock.clock.utcnow()
    hour = now.replace(minute=1, second=0, microsecond=0) + HOUR
    await step(pods, hour - now)
    return hour.replace(minute=0)


async def test_time_that_is_moved_drives_crons_without_waiting() -> None:
    log = Log()
    async with local_cluster(pods=2, include=[log.registry]) as pods:
        hour = await to_the_hour(pods)
        log.ran.clear()
        for number in range(1, 4):
            await step(pods, timedelta(minutes=10))
            await until(lambda number=number: len(log.ran) == number, what="its tick")
        assert log.ran == [hour + timedelta(minutes=minute) for minute in (10, 20, 30)]


async def test_after_a_pause_only_the_last_instant_is_made_up_for() -> None:
    log = Log()
    async with local_cluster(pods=1, include=[log.registry]) as pods:
        hour = await to_the_hour(pods)
        log.ran.clear()
        await step(pods, 5 * HOUR)
        await until(lambda: log.ran, what="one tick")
        await step(pods, timedelta(minutes=10))
        await until(lambda: len(log.ran) >= 2, what="the next")
        assert log.ran == [hour + 5 * HOUR, hour + 5 * HOUR + timedelta(minutes=10)]


async def test_each_instant_that_is_not_too_old_if_asked_for_in_order() -> None:
    log = Log(calculate_next_run_from_previous=True, skip_if_older_than=2 * HOUR, overlap="allow")
    async with local_cluster(pods=1, include=[log.registry]) as pods:
        hour = await to_the_hour(pods)
        log.ran.clear()
        await step(pods, 5 * HOUR)
        await until(lambda: len(log.ran) == 12, what="twelve ticks")
        assert sorted(log.ran) == [hour + 3 * HOUR + timedelta(minutes=10 * n) for n in range(1, 13)]
        found = await info(pods)
        assert found.last == hour + 5 * HOUR
        assert found.next == tuple(hour + 5 * HOUR + timedelta(minutes=10 * n) for n in (1, 2, 3))


async def test_nothing_if_the_last_instant_is_too_old() -> None:
    log = Log("0 0 1 1 *", skip_if_older_than=HOUR)
    async with local_cluster(pods=1, include=[log.registry]) as pods:
        now = pods.clock.clock.utcnow()
        await step(pods, datetime(now.year + 1, 1, 1, 3, tzinfo=UTC) - now)
        assert log.ran == []
        assert (await info(pods)).next[0] == datetime(now.year + 2, 1, 1, tzinfo=UTC)
        await step(pods, datetime(now.year + 2, 1, 1, 0, 30, tzinfo=UTC) - pods.clock.clock.utcnow())
        await until(lambda: log.ran, what="the next year's")
        assert log.ran == [datetime(now.year + 2, 1, 1, tzinfo=UTC)]


async def test_downtime_makes_no_burst_and_a_changed_expression_keeps_its_last_instant(
    make_sqlite_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "redis_cluster_kit.runtime.cron_planner.AHEAD_MS", 0
    )  # what is planned is no downtime
    first, second = Log("* * * * * *"), Log("* * * * * */1")
    async with make_sqlite_cluster(include=[first.registry]) as cluster:
        await until(lambda: len(first.ran) >= 2, timeout=10, what="ticks")
        last = (await cluster.crons.list())[0].last
    await anyio.sleep(3.1)  # nobody is there
    async with make_sqlite_cluster(include=[second.registry]) as cluster:
        begun = cluster.joined_runner().clock.utcnow()
        await until(lambda: len(second.ran) >= 2, timeout=10, what="ticks")
        assert (await cluster.crons.list())[0].expression == "* * * * * */1"
    assert set(first.ran).isdisjoint(second.ran)
    assert min(second.ran) > last
    made_up = [one for one in second.ran if one <= begun]
    assert len(made_up) <= 1
    assert min(second.ran) > begun - timedelta(seconds=1.5)


async def test_a_new_cron_begins_now(make_cluster: MakeCluster, rows: Rows) -> None:
    log = Log("0 0 * * *", calculate_next_run_from_previous=True)
    async with make_cluster(include=[log.registry]) as cluster:
        await until(lambda: planned(cluster), what="it is planned")
        await cluster.poll()
        assert await rows("SELECT * FROM rck_cron_instant") == []


async def test_instants_that_would_overlap_are_skipped_if_asked_for() -> None:
    log = Log(overlap="skip")
    async with local_cluster(pods=1, include=[log.registry]) as pods:
        await to_the_hour(pods)
        log.go_on = anyio.Event()
        log.ran.clear()
        await pods.clock.advance(timedelta(minutes=10))
        await until(lambda: log.ran, what="a tick")
        await pods.clock.advance(timedelta(minutes=10))
        await pods.clock.advance(timedelta(minutes=10))
        host = pods[0].joined_runner().host
        await until(lambda: host.crons.counters["log"].skipped["overlap"] == 2, what="two are skipped")
        assert (await info(pods)).pending == 1
        with pytest.raises(RuntimeError, match="may not overlap"):
            await pods[0].crons.trigger("log")
        log.go_on.set()
        await step(pods, timedelta(minutes=10))
        await until(lambda: len(log.ran) == 2, what="it goes on")


async def test_of_many_triggers_at_once_one_is_taken_if_they_may_not_overlap(
    make_cluster: MakeCluster,
) -> None:
    log = Log("0 0 1 1 *", overlap="skip")
    log.go_on = anyio.Event()
    taken: list[datetime] = []
    refused: list[str] = []
    async with make_cluster(include=[log.registry]) as cluster:
        await until(lambda: planned(cluster), what="it is planned")

        async def trigger() -> None:
            try:
                taken.append(await cluster.crons.trigger("log"))
            except RuntimeError as error:
                refused.append(str(error))

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(trigger)
        assert (len(taken), len(refused)) == (1, 7)
        await until(lambda: log.ran == taken, timeout=20, what="it runs")
        log.go_on.set()


async def test_ticks_overlap_by_default() -> None:
    log = Log()
    async with local_cluster(pods=2, include=[log.registry]) as pods:
        await to_the_hour(pods)
        log.go_on = anyio.Event()
        log.ran.clear()
        for _ in range(3):
            await pods.clock.advance(timedelta(minutes=10))
        await until(lambda: len(log.ran) == 3, what="three run at once")
        assert (await info(pods)).pending == 3
        log.go_on.set()


async def test_a_breaker_opens_lets_one_through_and_closes() -> None:
    log = Log(retry=at_once(1), circuit_breaker=CircuitBreaker(failures=3, reset_after=HOUR))
    with quiet("redis_cluster_kit.runtime.turns"), quiet("redis_cluster_kit.runtime.crons"):
        async with local_cluster(pods=2, include=[log.registry]) as pods:
            await to_the_hour(pods)
            assert (await info(pods)).breaker == "closed"
            log.error = RuntimeError("no")
            log.ran.clear()
            for _ in range(5):
                await step(pods, timedelta(minutes=10))
            await until(lambda: len(log.ran) == 3, what="three ticks fail, the others are skipped")
            found = await info(pods)
            assert (found.breaker, found.failures) == ("open", 3)
            healths = [await pod.health() for pod in pods]
            assert all(health.ready for health in healths)
            assert any("its breaker is open" in reason for health in healths for reason in health.reasons)
            await step(pods, timedelta(minutes=39))
            assert (await info(pods)).breaker == "open"
            await step(pods, timedelta(minutes=2))
            assert (await info(pods)).breaker == "half-open"
            await step(pods, timedelta(minutes=10))
            await until(lambda: len(log.ran) == 4, what="one is tried")
            await until(lambda: _breaker(pods, "open"), what="it fails, and the wait begins anew")
            log.error = None
            await step(pods, timedelta(minutes=70))
            await until(lambda: _breaker(pods, "closed"), what="the next one closes it")
            assert (await info(pods)).failures == 0
            assert len(log.ran) == 5
            await step(pods, timedelta(minutes=10))
            await until(lambda: len(log.ran) == 6, what="all is as before")


async def _breaker(pods: Pods, state: str) -> bool:
    return (await info(pods)).breaker == state


async def test_paused_and_resumed_from_another_pod(make_sqlite_cluster: MakeCluster) -> None:
    log = Log("* * * * * *", calculate_next_run_from_previous=True)
    async with make_sqlite_cluster(include=[log.registry]), make_sqlite_cluster(hosting=False) as outside:
        await until(lambda: log.ran, timeout=10, what="a tick")
        await outside.crons.pause("log")
        assert (await outside.crons.list())[0].paused
        await anyio.sleep(1.2)
        before = len(log.ran)
        await anyio.sleep(2.2)
        assert len(log.ran) == before
        triggered = await outside.crons.trigger("log")
        await until(lambda: triggered in log.ran, what="by hand it runs")
        await outside.crons.resume("log")
        await until(lambda: len(log.ran) >= before + 3, timeout=10, what="it goes on")
        instants = sorted(one for one in log.ran if one != triggered)
        missing = instants[-1] - instants[0] - timedelta(seconds=len(instants) - 1)
        assert missing >= timedelta(seconds=2), "what passed while it was paused stays past"
        for act in (outside.crons.pause, outside.crons.resume, outside.crons.trigger):
            with pytest.raises(LookupError, match="no cron 'nosuch'; known: log"):
                await act("nosuch")


async def test_a_cron_is_planned_and_run_where_it_is_known(make_sqlite_cluster: MakeCluster) -> None:
    old, new = Log("* * * * * *"), Log("* * * * * *")
    extra: list[Tick] = []

    @new.registry.cron("* * * * * *", name="extra")
    async def run(tick: Tick) -> None:
        extra.append(tick)

    async with make_sqlite_cluster(include=[old.registry]) as before:
        await until(lambda: old.ran, timeout=10, what="a tick")
        async with make_sqlite_cluster(include=[new.registry]) as after:
            await until(lambda: len(extra) >= 3, timeout=30, what="ticks of what only one pod knows")
            assert planned(after) >= {"extra"}
            assert "extra" not in planned(before)
            assert {tick.cluster for tick in extra} == {after}
        await until(lambda: planned(before) == {"log"}, timeout=20, what="the old pod plans again")
    both = [*old.ran, *new.ran]
    assert len(set(both)) == len(both)


async def test_a_tick_that_comes_too_late_is_skipped(make_cluster: MakeCluster, rows: Rows) -> None:
    log = Log("0 0 1 1 *", skip_if_older_than=timedelta(seconds=1))
    async with make_cluster(include=[log.registry]) as cluster:
        await until(lambda: planned(cluster), what="it is planned")
    async with make_cluster(hosting=False) as outside:  # nobody is there to run it
        await outside.crons.trigger("log")
    await anyio.sleep(1.1)
    async with make_cluster(include=[log.registry]) as cluster:
        host = cluster.joined_runner().host
        assert host is not None
        assert host.crons is not None
        counted = host.crons.counters["log"]
        await until(lambda: counted.skipped["late"] == 1, timeout=10, what="it is skipped")
        assert log.ran == []
        found = await rows("SELECT status, reason FROM rck_cron_instant")
        assert found == [("skipped", "late")]
