"""Ticks are planned a moment before their instant and come at it: what happens in between still counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redis_cluster_kit import CircuitBreaker, Cluster, PersistenceFailedError, Registry, Tick
from redis_cluster_kit.runtime.tick_messages import TickMessages
from redis_cluster_kit.storage import DueInstant, SqlCrons
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, Rows, quiet
from .test_clocks import SetClock

LONG_AHEAD = 800
"""Milliseconds: long enough for a test to act between a plan and its instant, and below a second."""
ERROR = 0.005
"""By so much two readings of the server's clock may differ."""


class Seconds:
    """A cron that comes every second, and when each tick began by the cluster's clock."""

    def __init__(self, **options: Any) -> None:
        self.began: dict[datetime, list[float]] = {}
        self.registry = Registry()
        self.registry.cron("* * * * * *", name="clock", **options)(self.run)

    async def run(self, tick: Tick) -> None:
        now = tick.cluster.joined_runner().clock.now()
        self.began.setdefault(tick.scheduled, []).append(now)

    async def more(self, number: int = 1) -> None:
        before = len(self.began)
        await until(lambda: len(self.began) >= before + number, timeout=20, what=f"{number} more ticks")

    def each_once(self) -> list[datetime]:
        """See that no instant is missing or came twice, and that none came early."""
        ran = sorted(self.began)
        assert ran[-1] - ran[0] == timedelta(seconds=len(ran) - 1)
        assert {len(times) for times in self.began.values()} == {1}
        assert all(times[0] >= at.timestamp() - ERROR for at, times in self.began.items())
        return ran


class Plans:
    """What planners wrote: each due instant, and the time it was told to the database."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[DueInstant, int]] = []
        self.postponed: list[DueInstant] = []
        real = SqlCrons.plan

        async def plan(store: SqlCrons, holds: Any, due: Sequence[DueInstant], **named: Any) -> Any:
            planned = await real(store, holds, due, **named)
            self.seen += [(one, named["now_ms"]) for one in due]
            self.postponed += planned.postponed
            return planned

        monkeypatch.setattr(SqlCrons, "plan", plan)

    def ahead(self, name: str = "clock") -> list[datetime]:
        """Those that were planned before their instant."""
        return [moment(one) for one, now in self.seen if one.name == name and one.scheduled > now]

    async def one_ahead(self) -> datetime:
        """Wait for the next that is planned before its instant."""
        known = len(self.ahead())
        await until(lambda: len(self.ahead()) > known, timeout=20, what="an instant that is planned ahead")
        return self.ahead()[-1]


def moment(one: DueInstant) -> datetime:
    return datetime.fromtimestamp(one.scheduled / 1000, UTC)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Plans]:
    monkeypatch.setattr("redis_cluster_kit.runtime.cron_planner.AHEAD_MS", LONG_AHEAD)
    return Plans(monkeypatch)


def passed(cluster: Cluster, at: datetime, seconds: float = 0.5) -> Any:
    clock = cluster.joined_runner().clock
    return until(lambda: clock.now() > at.timestamp() + seconds, timeout=20, what=f"{at} is past")


async def status(rows: Rows, at: datetime) -> tuple[Any, ...]:
    ((*found,),) = await rows(
        f"SELECT status, reason FROM rck_cron_instant WHERE scheduled = {at.timestamp() * 1000:.0f}"
    )
    return tuple(found)


async def test_planned_a_moment_before_the_instant(
    make_sqlite_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans, seconds = Plans(monkeypatch), Seconds()
    async with make_sqlite_cluster(include=[seconds.registry]):
        await until(lambda: set(plans.ahead()) & set(seconds.began), timeout=20, what="one planned ahead ran")
        await seconds.more(2)
    seconds.each_once()
    assert all(one.scheduled - now <= 30 for one, now in plans.seen), "and not long before"


async def test_never_before_the_instant(make_sqlite_cluster: MakeCluster, plans: Plans) -> None:
    seconds = Seconds()
    async with (
        make_sqlite_cluster(include=[seconds.registry]),
        make_sqlite_cluster(include=[seconds.registry]),
    ):
        await seconds.more(4)
    assert len(set(plans.ahead()) & set(seconds.each_once())) >= 3


async def test_a_pause_between_plan_and_instant_counts(
    make_cluster: MakeCluster, plans: Plans, rows: Rows
) -> None:
    seconds = Seconds()
    async with make_cluster(include=[seconds.registry]) as cluster, make_cluster(hosting=False) as outside:
        await seconds.more()
        at = await plans.one_ahead()
        await outside.crons.pause("clock")
        assert await status(rows, at) == ("skipped", "paused")
        await passed(cluster, at)
        assert at not in seconds.began
        await outside.crons.resume("clock")
        await seconds.more(2)
        assert await status(rows, at) == ("skipped", "paused"), "what was past when it was resumed stays past"
    assert at not in seconds.began


async def test_a_pause_and_its_end_between_plan_and_instant(
    make_cluster: MakeCluster, plans: Plans, rows: Rows
) -> None:
    seconds = Seconds()
    async with make_cluster(include=[seconds.registry]) as cluster:
        await seconds.more()
        at = await plans.one_ahead()
        await cluster.crons.pause("clock")
        await cluster.crons.resume("clock")
        assert cluster.joined_runner().clock.now() < at.timestamp(), "both came before it"
        await until(lambda: at in seconds.began, timeout=20, what="it comes")
        await seconds.more(2)
        await until(lambda: _is(status(rows, at), ("done", None)), what="its row says so")
    seconds.each_once()


async def _is(found: Any, expected: object) -> bool:
    return bool(await found == expected)


async def test_resumed_after_it_would_have_been_planned(make_cluster: MakeCluster, plans: Plans) -> None:
    seconds = Seconds()
    async with make_cluster(include=[seconds.registry]) as cluster:
        await seconds.more()
        await cluster.crons.pause("clock")
        await until(lambda: plans.postponed, timeout=20, what="an instant waits for what will be said at it")
        at = moment(plans.postponed[-1])
        await cluster.crons.resume("clock")
        assert cluster.joined_runner().clock.now() < at.timestamp(), "before the instant"
        await until(lambda: at in seconds.began, timeout=20, what="it comes")
        later = await plans.one_ahead()
        await until(lambda: later in seconds.began, timeout=20, what="and the next are planned ahead again")


async def test_what_has_to_be_looked_up_is_decided_at_the_instant(
    make_sqlite_cluster: MakeCluster, plans: Plans
) -> None:
    plain, alone, tripping = Seconds(), Registry(), Registry()
    ran: list[str] = []

    @alone.cron("* * * * * *", name="alone", overlap="skip")
    async def one(tick: Tick) -> None:
        ran.append(tick.name)

    @tripping.cron("* * * * * *", name="tripping", circuit_breaker=CircuitBreaker())
    async def two(tick: Tick) -> None:
        ran.append(tick.name)

    async with make_sqlite_cluster(include=[plain.registry, alone, tripping]):
        await plain.more(3)
        await until(lambda: {"alone", "tripping"} <= set(ran), timeout=20, what="each ran")
    assert plans.ahead()
    assert plans.ahead("alone") == plans.ahead("tripping") == []


async def test_a_message_that_did_not_leave_before_the_instant(
    make_sqlite_cluster: MakeCluster, plans: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row waits for a time to come, and the planner that begins anew sends it all the same."""
    real, refused, is_away = TickMessages.send, list[int](), False

    async def send(messages: TickMessages, place: Any, **named: Any) -> str:
        if is_away and not refused:
            refused.append(named["due"])
            raise PersistenceFailedError(store="redis", detail="away")
        return await real(messages, place, **named)

    monkeypatch.setattr(TickMessages, "send", send)
    seconds = Seconds()
    with quiet("redis_cluster_kit.runtime.cron_planner"):
        async with make_sqlite_cluster(include=[seconds.registry]) as cluster:
            await seconds.more()
            is_away = True
            at = await plans.one_ahead()
            await until(lambda: refused, what="its message is refused")
            assert cluster.joined_runner().clock.now() < at.timestamp(), "before the instant"
            await until(lambda: at in seconds.began, timeout=10, what="it comes")
            await seconds.more(2)
    seconds.each_once()


async def test_the_planner_leaves_between_plan_and_instant(
    make_sqlite_cluster: MakeCluster, plans: Plans
) -> None:
    first, second = Seconds(), Seconds()
    async with make_sqlite_cluster(include=[second.registry], entities=[]) as other:
        async with make_sqlite_cluster(include=[first.registry]):
            await until(lambda: first.began or second.began, timeout=20, what="ticks")
            at = await plans.one_ahead()
        await second.more(3)
        await passed(other, at)
    for instant, times in first.began.items():
        second.began.setdefault(instant, []).extend(times)
    assert at in second.each_once()


async def test_a_clock_that_is_set_back_between_plan_and_instant(
    make_sqlite_cluster: MakeCluster, plans: Plans
) -> None:
    seconds, clock = Seconds(), SetClock()
    async with make_sqlite_cluster(include=[seconds.registry]).with_clock(clock):
        await seconds.more()
        at = await plans.one_ahead()
        clock.set_back(timedelta(seconds=2))
        assert clock.now() < at.timestamp() - 2
        await until(lambda: at in seconds.began, timeout=20, what="it comes when its time is there")
        await seconds.more(2)
    seconds.each_once()
