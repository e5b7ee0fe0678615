"""A rolling restart while everything waits durably: nothing is lost, run again, or counted as an attempt."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta

import anyio

from redis_cluster_kit import Cluster, Registry, SingletonContext, Tick
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, residents
from .flows import WORLD, Order
from .test_parking import parked

ORDERS = 20


def _waiting(tokens: dict[str, str], ended: dict[str, int]) -> Registry:
    registry = Registry()

    @registry.singleton("patient")
    async def patient(ctx: SingletonContext[None]) -> None:
        answer = ctx.deferred("answer", int)
        tokens["singleton"] = answer.token
        ended["singleton"] = await answer
        await anyio.sleep_forever()

    @registry.cron("0 0 1 1 *", name="patient", skip_if_older_than=timedelta(days=1))
    async def tick(tick: Tick) -> None:
        answer = tick.deferred("answer", int)
        tokens["tick"] = answer.token
        ended["tick"] = await answer * tick.attempt

    return registry


async def test_what_waits_survives_that_every_pod_is_replaced(make_cluster: MakeCluster) -> None:
    tokens: dict[str, str] = {}
    ended: dict[str, int] = {}

    def pod() -> Cluster:
        return make_cluster(Order, include=[_waiting(tokens, ended)])

    async with AsyncExitStack() as running:
        pods = [pod(), pod()]
        first, second = [await running.enter_async_context(one) for one in pods]
        receipts = [await first.entity(Order, f"o{number}").approve.send() for number in range(ORDERS)]
        await first.crons.trigger("patient")

        async def all_wait() -> bool:
            in_memory = residents(first) + residents(second)
            waiting = await parked(first) + await parked(second)
            return len(tokens) == 2 and in_memory == 0 and waiting == ORDERS + 1

        await until(all_wait, timeout=20, what="all wait, and only the singleton does in memory")
        for old in list(pods):
            pods.append(await running.enter_async_context(pod()))
            await old.__aexit__(None, None, None)
            pods.remove(old)
        running.pop_all()
        running.push_async_exit(pods[0])
        running.push_async_exit(pods[1])
        for token in [*set(WORLD.tokens)]:
            assert await pods[0].complete(token, True)
        for number, who in enumerate(("singleton", "tick"), 1):
            await until(lambda who=who: tokens.get(who), what=who)
            assert await pods[1].complete(tokens[who], number)
        for number, receipt in enumerate(receipts):
            again = pods[0].receipt(receipt.message_id, bool)
            assert await again.result(timeout=20) is True
            seen = await pods[0].entity(Order, f"o{number}").seen()
            assert seen == ["approved: True, attempt 1"]
        await until(lambda: ended == {"singleton": 1, "tick": 2}, timeout=20, what="both have ended")
        assert len(WORLD.effects) == ORDERS, "each was charged once"
        assert not await pods[0].dead_letters.list()
