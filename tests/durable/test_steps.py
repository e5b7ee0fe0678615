"""Steps of entities: run once for each message, typed, recorded, and refused when they cannot be."""

from __future__ import annotations

from redis_cluster_kit.testing import until

from .conftest import MakeCluster, Rows
from .flows import WORLD, Order


async def test_a_step_is_run_once_and_its_result_is_typed(make_cluster: MakeCluster, rows: Rows) -> None:
    async with make_cluster(Order) as cluster:
        order = cluster.entity(Order, "a")
        assert await order.pay(5) == 5
        assert WORLD.effects == [("charge", "a", 5), ("ship", "a")]
        assert await order.seen() == ["begun", "parcel-a"]
        await until(lambda: rows.count("rck_step") == 0 == rows.count("rck_execution"), what="rows gone")


async def test_a_turn_that_is_tried_again_runs_no_step_again(make_cluster: MakeCluster) -> None:
    async with make_cluster(Order) as cluster:
        assert await cluster.entity(Order, "a").pay_and_fail(2) == 3
        assert WORLD.effects == [("charge", "a", 1)]
