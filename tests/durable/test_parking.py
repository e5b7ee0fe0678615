"""Durable waits of entities: the turn leaves memory, its mailbox waits in order, and it costs no attempt."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from redis_cluster_kit import Cluster, DeferredFailedError, HandlerFailedError, TokenRefusedError
from redis_cluster_kit.testing import local_cluster, until

from .conftest import MakeCluster, Rows, executions_of, host_of, residents
from .flows import WORLD, Order


async def parked(cluster: Cluster) -> int:
    parking = executions_of(cluster).parking
    hosts = host_of(cluster).shards.values()
    return sum([await parking.count(host.shard) for host in list(hosts)])


async def is_parked(cluster: Cluster, number: int = 1) -> None:
    async def all_parked() -> bool:
        return await parked(cluster) == number and residents(cluster) == 0

    await until(all_parked, what=f"{number} parked, none in memory")


async def test_a_deferred_parks_its_turn_and_is_resolved_from_another_pod(make_cluster: MakeCluster) -> None:
    async with make_cluster(Order) as cluster, make_cluster(Order, hosting=False) as outside:
        asking = asyncio.create_task(cluster.entity(Order, "a").approve())
        await is_parked(cluster)
        assert await outside.complete(WORLD.tokens[0], True) is True
        assert await asking is True
        assert await outside.complete(WORLD.tokens[0], False) is False
        assert WORLD.effects == [("charge", "a", 1)]
        assert len(set(WORLD.tokens)) == 1 < len(WORLD.tokens)
        assert await cluster.entity(Order, "a").seen() == ["approved: True, attempt 1"]
        assert await parked(cluster) == 0


async def test_what_comes_behind_a_parked_message_waits_in_order(make_cluster: MakeCluster) -> None:
    async with make_cluster(Order) as cluster:
        order = cluster.entity(Order, "a")
        first = await order.approve.send()
        await is_parked(cluster)
        notes = [await order.note.send(str(number)) for number in range(5)]
        await asyncio.sleep(0.8)  # more than a poll: nothing may wake it, or run past it
        assert residents(cluster) == 0
        await cluster.complete(WORLD.tokens[0], True)
        assert await first.result(timeout=5) is True
        assert await notes[-1].result(timeout=5) == ["approved: True, attempt 1", *"01234"]


async def test_what_has_ended_takes_no_answer_any_more(make_cluster: MakeCluster, rows: Rows) -> None:
    async with make_cluster(Order) as cluster:
        receipt = await cluster.entity(Order, "a").approve.send()
        await is_parked(cluster)
        assert await cluster.complete(WORLD.tokens[0], True)
        assert await receipt.result(timeout=5) is True
        await until(lambda: rows.count("rck_deferred") == 0, what="nobody remembers who resolved it")
        assert await cluster.complete(WORLD.tokens[0], False) is False
        assert await cluster.fail(WORLD.tokens[0], "too late") is False


async def test_a_failed_deferred_raises_what_was_said(make_cluster: MakeCluster) -> None:
    async with make_cluster(Order) as cluster:
        asking = asyncio.create_task(cluster.entity(Order, "a").approve())
        await is_parked(cluster)
        assert await cluster.fail(WORLD.tokens[0], "the customer is gone")
        with pytest.raises(HandlerFailedError) as caught:
            await asking
        assert caught.value.remote_type == DeferredFailedError.__name__
        assert "the customer is gone" in caught.value.remote_message


async def test_a_value_of_another_type_is_refused_where_it_is_awaited(make_cluster: MakeCluster) -> None:
    async with make_cluster(Order) as cluster:
        asking = asyncio.create_task(cluster.entity(Order, "a").approve())
        await is_parked(cluster)
        assert await cluster.complete(WORLD.tokens[0], "yes")
        with pytest.raises(HandlerFailedError, match="expected <class 'bool'>"):
            await asking


async def test_forged_tokens_are_refused(make_cluster: MakeCluster, rows: Rows) -> None:
    async with make_cluster(Order) as cluster:
        await cluster.entity(Order, "a").approve.send()
        await is_parked(cluster)
        token = WORLD.tokens[0]
        named, _, digest = token.partition(".")
        for forged in (
            "",
            ".",
            named,
            f"{named}.",
            f"{named}.{digest[:-2]}",
            token + "A",
            "ä.ö",
            f"x{token}",
        ):
            with pytest.raises(TokenRefusedError, match=r"no token of a deferred"):
                await cluster.complete(forged, True)
        assert rows.count("rck_deferred") == 0


async def test_a_sleep_parks_and_the_clock_wakes_it() -> None:
    async with local_cluster(pods=1, entities=[Order]) as pods:
        order = pods[0].entity(Order, "a")
        asking = asyncio.create_task(order.nap.options(timeout=30)(3600))
        await is_parked(pods[0])
        await pods.clock.advance(timedelta(minutes=59))
        await asyncio.sleep(0.6)
        assert not asking.done()
        await pods.clock.advance(timedelta(minutes=2))
        assert await asking == 1
        assert WORLD.effects == [("charge", "a", 1), ("ship", "a")]
        assert await order.seen() == ["never committed twice"]


async def test_short_sleeps_stay_in_memory_and_longer_ones_come_back_in_time(
    make_cluster: MakeCluster,
) -> None:
    async with make_cluster(Order) as cluster:
        assert await cluster.entity(Order, "a").nap(0.05) == 1
        assert executions_of(cluster).counters.parks == 0
        assert await cluster.entity(Order, "b").nap(1.3) == 1
        assert executions_of(cluster).counters.parks == 1


@pytest.mark.parametrize("seconds", [0.4, 1.4])
async def test_a_sleep_beside_a_deferred_ends_in_time(make_cluster: MakeCluster, seconds: float) -> None:
    """The turn leaves memory for both: the earlier one brings it back, also one that is too short to."""
    async with make_cluster(Order) as cluster:
        asking = asyncio.create_task(cluster.entity(Order, "a").urge(seconds))
        await until(lambda: ("ship", "urged") in WORLD.effects, timeout=6, what="urged")
        await is_parked(cluster)
        assert executions_of(cluster).counters.parks <= 3
        assert await cluster.complete(WORLD.tokens[0], "yes")
        assert await asking == "yes"
        assert WORLD.effects == [("ship", "urged")]


async def test_thousands_wait_in_no_memory_and_all_come_back(make_cluster: MakeCluster) -> None:
    async with make_cluster(Order) as cluster:
        number = 500
        receipts = [await cluster.entity(Order, f"o{n}").approve.send() for n in range(number)]
        await is_parked(cluster, number)
        tokens = {*WORLD.tokens}
        assert len(tokens) == number
        for token in tokens:
            assert await cluster.complete(token, True)
        for receipt in receipts:
            assert await receipt.result(timeout=20) is True
        assert len(WORLD.effects) == number
