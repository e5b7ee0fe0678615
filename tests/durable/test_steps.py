"""Steps of entities: run once for each message, typed, recorded, and refused when they cannot be."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

import pytest

from redis_cluster_kit import (
    Cluster,
    DatabaseRequiredError,
    HandlerFailedError,
    MalformedMessageError,
    RedisSettings,
    StepConflictError,
)
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, Rows, executions_of, quick
from .flows import WORLD, Order


async def test_a_step_is_run_once_and_its_result_is_typed(make_cluster: MakeCluster, rows: Rows) -> None:
    async with make_cluster(Order) as cluster:
        order = cluster.entity(Order, "a")
        assert await order.pay(5) == 5
        assert WORLD.effects == [("charge", "a", 5), ("ship", "a")]
        assert await order.seen() == ["begun", "parcel-a"]
        await until(lambda: rows.count("rck_step") == 0 == rows.count("rck_execution"), what="rows gone")
        assert executions_of(cluster).counters.steps_run == 2


async def test_a_turn_that_is_tried_again_runs_no_step_again(make_cluster: MakeCluster) -> None:
    async with make_cluster(Order) as cluster:
        assert await cluster.entity(Order, "a").pay_and_fail(2) == 3
        assert WORLD.effects == [("charge", "a", 1)]
        assert executions_of(cluster).counters.steps_replayed == 2


async def test_another_input_under_the_same_name_is_refused_and_never_run(make_cluster: MakeCluster) -> None:
    async with make_cluster(Order) as cluster:
        with pytest.raises(StepConflictError, match="was recorded with another input") as refused:
            await cluster.entity(Order, "a").pay_twice(1, 2)
        assert refused.value.name == "charge"
        assert not refused.value.is_retryable
        assert WORLD.effects == [("charge", "a", 1)], "refused at the first attempt: it can never succeed"
        assert len(await cluster.dead_letters.list()) == 1
        assert executions_of(cluster).counters.step_conflicts == 1
        assert await cluster.entity(Order, "b").pay_twice(2, 2) == 2


async def test_a_result_that_is_of_another_type_by_now_is_refused(make_cluster: MakeCluster) -> None:
    async with make_cluster(Order) as cluster:
        with pytest.raises(HandlerFailedError, match=r"step 'charge': expected <class 'int'>") as refused:
            await cluster.entity(Order, "a").changed_result()
        assert refused.value.remote_type == MalformedMessageError.__name__
        assert WORLD.effects == [("charge", "a", 1)], "it was done: it is not done again"


async def test_steps_do_not_nest(make_cluster: MakeCluster) -> None:
    async with make_cluster(Order) as cluster:
        with pytest.raises(HandlerFailedError, match="step 'inner' was called inside step 'outer'"):
            await cluster.entity(Order, "a").nested()


async def test_a_step_knows_where_it_runs(make_cluster: MakeCluster) -> None:
    async with make_cluster(Order) as cluster:
        seen = await cluster.entity(Order, "a").look_around()
        assert seen == ["order", "a", "1", cluster.runner_id]


async def test_two_pods_resolve_a_deferred_at_once_and_one_of_them_does(make_cluster: MakeCluster) -> None:
    async with make_cluster(Order) as first, make_cluster(Order, hosting=False) as second:
        receipts = [await first.entity(Order, f"o{number}").approve.send() for number in range(10)]
        await until(lambda: len(set(WORLD.tokens)) == 10, what="all ask")
        for token in sorted(set(WORLD.tokens)):
            answers = await asyncio.gather(
                first.complete(token, True), second.complete(token, True), second.fail(token, "no")
            )
            assert sorted(answers) == [False, False, True]
        for receipt in receipts:
            with contextlib.suppress(HandlerFailedError):  # the one that was failed
                assert await receipt.result(timeout=10) is True


async def _nothing_durable(cluster: Cluster) -> None:
    with pytest.raises(DatabaseRequiredError):
        await cluster.complete("token", True)
    with pytest.raises(DatabaseRequiredError):
        await cluster.fail("token", "no")
    with pytest.raises(DatabaseRequiredError):
        await cluster.executions.list()


@pytest.mark.parametrize("rpc", ["pay", "nap", "approve"])
async def test_without_a_database_entities_hear_what_is_missing(make_cluster: MakeCluster, rpc: str) -> None:
    settings = quick(redis=RedisSettings(assume_weak_fences=True))
    options: dict[str, Any] = {"database": None, "settings": settings}
    async with make_cluster(Order, **options) as cluster:
        order = cluster.entity(Order, "a")
        with pytest.raises(HandlerFailedError, match="durable calls need a database") as refused:
            await (order.approve() if rpc == "approve" else getattr(order, rpc)(1))
        assert refused.value.remote_type == DatabaseRequiredError.__name__
        assert not WORLD.effects
        await _nothing_durable(cluster)


async def test_a_sleep_that_is_too_long_is_refused_at_once(make_cluster: MakeCluster) -> None:
    async with make_cluster(Order) as cluster:
        await cluster.entity(Order, "a").nap(timedelta(days=366).total_seconds())
        assert WORLD.effects == [("charge", "a", 1), "swallowed", ("ship", "a")]
