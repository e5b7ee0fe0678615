"""What is left behind: rows without a message get one, dead letters are noted, what is over is forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from redis_cluster_kit import Cluster, PersistenceFailedError, Registry, Tick
from redis_cluster_kit.runtime.cron_sweeper import CronSweeper
from redis_cluster_kit.storage import SqlCrons, SqlTicks
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, Rows, at_once, planned, quiet
from .test_clocks import crons_of

MINUTE, HOUR, DAY = (timedelta(**{unit: 1}) for unit in ("minutes", "hours", "days"))
MODULE = "redis_cluster_kit.runtime.cron_sweeper"


class Old:
    """A cron that is never due, and rows of its past."""

    def __init__(self, rows: Rows) -> None:
        self.ran: list[datetime] = []
        self.error: Exception | None = None
        self.go_on = anyio.Event()
        self.go_on.set()
        self.registry = Registry()
        self.registry.cron("0 0 29 2 *", name="old", retry=at_once(1))(self.run)
        self._rows = rows

    async def run(self, tick: Tick) -> None:
        self.ran.append(tick.scheduled)
        await self.go_on.wait()
        if self.error is not None:
            raise self.error

    @asynccontextmanager
    async def planned(self, make_cluster: MakeCluster) -> AsyncIterator[tuple[Cluster, CronSweeper]]:
        """Be planned by a runner whose own sweeps do not come in between."""
        async with make_cluster(include=[self.registry]) as cluster:
            await until(lambda: planned(cluster), what="it is planned")
            yield cluster, crons_of(cluster).sweeper

    async def add(self, *ages: timedelta, status: str = "pending", name: str = "old") -> list[datetime]:
        """Insert rows as the planner does; return their instants."""
        now = datetime.now(UTC).replace(microsecond=0)
        instants = [now - age for age in ages]
        values = ", ".join(
            f"('{name}', {at.timestamp() * 1000:.0f}, '{status}', '', 0, (SELECT namespace FROM rck_cron))"
            for at in instants
        )
        columns = "name, scheduled, status, message_id, attempt, namespace"
        await self._rows(f"INSERT INTO rck_cron_instant ({columns}) VALUES {values} RETURNING 1")
        return instants

    async def kept(self, name: str = "old") -> dict[datetime, tuple[str, str | None]]:
        """What the rows say now."""
        where = f"WHERE name = '{name}'"
        found = await self._rows(f"SELECT scheduled, status, reason FROM rck_cron_instant {where}")
        return {
            datetime.fromtimestamp(scheduled / 1000, UTC): (status, reason)
            for scheduled, status, reason in found
        }


@pytest.fixture
def old(rows: Rows) -> Old:
    return Old(rows)


class Watched:
    """How many rows each call of a store's method gave."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.sizes: list[int] = []
        real = getattr(SqlCrons, method)

        async def watched(store: SqlCrons, *args: Any, **named: Any) -> Any:
            found = await real(store, *args, **named)
            self.sizes.append(found if isinstance(found, int) else len(found))
            return found

        monkeypatch.setattr(SqlCrons, method, watched)


async def test_what_is_over_is_kept_for_hours_and_dead_ones_for_months(
    make_cluster: MakeCluster, old: Old
) -> None:
    async with old.planned(make_cluster) as (_, sweeper):
        ages = (5 * HOUR, 7 * HOUR, 89 * DAY, 91 * DAY)
        kept = set(await old.add(*(age + MINUTE for age in ages), status="pending"))
        for shift, status, number in ((2, "done", 1), (3, "skipped", 1), (4, "dead", 3)):
            kept |= set((await old.add(*(age + shift * MINUTE for age in ages), status=status))[:number])
        assert len(await old.kept()) == 16
        await sweeper.clean()
        assert set(await old.kept()) == kept
        assert len(kept) == 4 + 1 + 1 + 3


async def test_what_is_over_goes_in_bounded_batches_of_the_crons_planned_here(
    make_cluster: MakeCluster, old: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}._MOST_FORGOTTEN", 40)
    cleaned = Watched(monkeypatch, "clean")
    async with old.planned(make_cluster) as (_, sweeper):
        ages = [7 * HOUR + number * MINUTE for number in range(100)]
        await old.add(*ages, status="done")
        await old.add(*ages[:50], status="pending", name="other")
        others = await old.add(*ages[50:], status="done", name="other")
        await sweeper.clean()
        assert cleaned.sizes == [40, 40, 20]
        assert await old.kept() == {}
        assert set(await old.kept("other")) >= set(others), "another runner plans that"


async def test_a_row_without_a_message_gets_one_when_it_is_old(make_cluster: MakeCluster, old: Old) -> None:
    with quiet(MODULE):
        async with old.planned(make_cluster) as (cluster, sweeper):
            (late,) = await old.add(timedelta(seconds=40))
            (young,) = await old.add(timedelta(seconds=5))
            await sweeper.sweep()
            await until(lambda: old.ran, timeout=20, what="the old one runs")
            for _ in range(2):
                await sweeper.sweep()  # harms nothing
            await cluster.crons.trigger("old")
            await until(lambda: len(old.ran) == 2, timeout=20, what="one by hand")
            counted = crons_of(cluster).counters["old"]
            await until(lambda: counted.executions == 2, timeout=20, what="their ends")
            assert old.ran[0] == late
            assert young not in old.ran
            assert (await old.kept())[young] == ("pending", None)


async def test_a_sweep_is_bounded_and_the_next_goes_on_after_it(
    make_cluster: MakeCluster, old: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}._MOST", 10)
    looked = Watched(monkeypatch, "pending")
    with quiet(MODULE):
        async with old.planned(make_cluster) as (cluster, sweeper):
            instants = await old.add(*(number * MINUTE for number in range(1, 26)))
            old.go_on = anyio.Event()  # none ends meanwhile
            looked.sizes.clear()
            for _ in range(4):
                await sweeper.sweep()
            assert looked.sizes == [10, 10, 5, 10], "and then from the start again"
            await until(lambda: set(old.ran) == set(instants), timeout=20, what="all of them run")
            old.go_on.set()
            counted = crons_of(cluster).counters["old"]
            await until(lambda: counted.executions == len(old.ran) == 25, timeout=20, what="each once")


async def test_a_dead_letter_whose_row_does_not_say_so(
    make_cluster: MakeCluster, old: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database was away when it was buried."""
    real, is_away = SqlTicks.end, True

    async def end(ticks: SqlTicks, *args: Any, **named: Any) -> None:
        if is_away:
            raise PersistenceFailedError(store="database", detail="away")
        await real(ticks, *args, **named)

    monkeypatch.setattr(SqlTicks, "end", end)
    old.error = RuntimeError("no")
    with quiet("redis_cluster_kit.runtime.turns"), quiet("redis_cluster_kit.runtime.crons"), quiet(MODULE):
        async with old.planned(make_cluster) as (cluster, sweeper):
            (at,) = await old.add(HOUR)
            await sweeper.sweep()
            await until(cluster.dead_letters.list, what="a dead letter")
            assert (await old.kept())[at] == ("pending", None)
            is_away = False
            await sweeper.sweep()
            assert (await old.kept())[at] == ("dead", None)


async def test_a_message_that_was_withdrawn(make_cluster: MakeCluster, old: Old) -> None:
    with quiet(MODULE):
        async with old.planned(make_cluster) as (cluster, sweeper):
            (at,) = await old.add(MINUTE)
            place = sweeper._messages.place("old", "default", int(at.timestamp() * 1000))
            await sweeper._messages.send(place, due=int(at.timestamp() * 1000) + 3_600_000)
            assert await cluster.cancel(place.message_id)
            await sweeper.sweep()
            assert (await old.kept())[at] == ("skipped", "withdrawn")
            assert old.ran == []
