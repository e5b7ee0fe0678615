"""What is deleted and what is kept: bounded batches, nothing that may still go on, nothing for ever."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from redis_cluster_kit import Registry, SingletonContext
from redis_cluster_kit.runtime import Executions
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, Rows, forgetting_of
from .flows import WORLD, Order
from .test_parking import is_parked
from .test_singletons import Notes, Progress, registry

PASSED = "UPDATE rck_execution SET keep_until = 0"


@pytest.fixture
def nothing_is_deleted_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each runner died between the end of an execution and the deletion of its journal."""
    monkeypatch.setattr(Executions, "ended", lambda *_: None)


async def test_a_parked_turn_keeps_its_journal_beyond_the_retention(
    make_cluster: MakeCluster, rows: Rows
) -> None:
    async with make_cluster(Order) as cluster:
        receipt = await cluster.entity(Order, "a").approve.send()
        await is_parked(cluster)
        rows(PASSED)
        assert await forgetting_of(cluster).clean_once() == 1
        assert rows("SELECT count(*) FROM rck_execution WHERE keep_until > 0") == [(1,)]
        assert rows.count("rck_step") == 1
        await cluster.complete(WORLD.tokens[0], True)
        assert await receipt.result(timeout=5)
        assert WORLD.effects == [("charge", "a", 1)]


@pytest.mark.usefixtures("nothing_is_deleted_behind_them")
async def test_what_crashes_left_behind_goes_in_batches(make_cluster: MakeCluster, rows: Rows) -> None:
    async with make_cluster(Order) as cluster:
        for number in range(3):
            await cluster.entity(Order, f"o{number}").pay(1)
        for number in range(250):
            rows(
                "INSERT INTO rck_execution (namespace, subject, execution, shard_group, shard, opened_at,"
                f" keep_until, failures) SELECT namespace, subject, execution || '{number}', shard_group,"
                " shard, opened_at, 0, 0 FROM rck_execution ORDER BY execution LIMIT 1"
            )
        forgetting = forgetting_of(cluster)
        assert [await forgetting.clean_once() for _ in range(4)] == [100, 100, 50, 0]
        assert rows.count("rck_execution") == 3  # their retention has not passed
        rows(PASSED)
        assert await forgetting.clean_once() == 3
        assert rows.count("rck_execution") == rows.count("rck_step") == 0


async def test_deferreds_that_belong_to_nothing_go_too(make_cluster: MakeCluster, rows: Rows) -> None:
    async with make_cluster(Order) as cluster:
        receipt = await cluster.entity(Order, "a").approve.send()
        await is_parked(cluster)
        assert await cluster.complete(WORLD.tokens[0], True)
        await receipt.result(timeout=5)
        await until(lambda: rows.count("rck_deferred") == 0, what="it went with its execution")
        assert not await cluster.complete(WORLD.tokens[0], True)
        for number in range(151):  # as if their executions had ended while they were resolved
            resolved_at = 0 if number else "strftime('%s') * 1000"
            rows(
                f"INSERT INTO rck_deferred SELECT namespace, 'e:order:a', '0', 'late {number}', 'default', 0,"
                f" x'c3', NULL, {resolved_at}, 1 FROM rck_secret"
            )
        assert [await forgetting_of(cluster).clean_once() for _ in range(2)] == [100, 50]
        assert rows("SELECT name FROM rck_deferred") == [("late 0",)]  # resolved just now


@pytest.mark.usefixtures("nothing_is_deleted_behind_them")
async def test_of_a_singleton_only_the_open_execution_is_kept(make_cluster: MakeCluster, rows: Rows) -> None:
    notes = Notes()

    async def coordinator(ctx: SingletonContext[Progress]) -> None:
        for _ in range(3):
            batch = await ctx.step("fetch", notes.fetch, ctx.state.last)
            await ctx.update(last=batch.last)
        await ctx.step("fetch", notes.fetch, ctx.state.last)
        await anyio.sleep_forever()

    async with make_cluster(include=[registry(coordinator)]) as cluster:
        await until(lambda: rows.count("rck_step") == 4, what="the fourth is open")
        rows(PASSED)
        assert await forgetting_of(cluster).clean_once() == 4
        assert rows("SELECT execution FROM rck_execution") == [("3.0",)]
        assert rows("SELECT execution FROM rck_step") == [("3.0",)]


@pytest.mark.usefixtures("nothing_is_deleted_behind_them")
async def test_a_state_that_was_forgotten_takes_its_executions_along(
    make_cluster: MakeCluster, rows: Rows
) -> None:
    """Versions count from 1 again: steps of the first life are not found in the second."""
    notes = Notes()

    async def coordinator(ctx: SingletonContext[Progress]) -> None:
        batch = await ctx.step("fetch", notes.fetch, ctx.state.last)
        await ctx.update(last=batch.last)
        await anyio.sleep_forever()

    def include() -> Registry:
        made = Registry()
        made.singleton("coordinator", state=Progress, state_ttl=timedelta(days=1))(coordinator)
        return made

    async with make_cluster(include=[include()]):
        await until(lambda: rows.count("rck_singleton_state") == 1, what="saved")
    rows("UPDATE rck_singleton_metadata SET served_at = 0")
    async with make_cluster(include=[include()]):
        await until(lambda: len(notes.fetched) == 2, what="it begins anew")
    assert notes.fetched == [0, 0]
