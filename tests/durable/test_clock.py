"""Durable sleeps of days, woken by a clock that a test moves: of entities, singletons and ticks."""

from __future__ import annotations

from datetime import timedelta

import anyio

from redis_cluster_kit import Registry, SingletonContext, Tick
from redis_cluster_kit.testing import Pods, local_cluster, until

from .flows import Order

DAYS = 3
DAY = timedelta(days=1)


def _sleepers(woken: list[str]) -> Registry:
    registry = Registry()

    @registry.singleton("sleeper")
    async def sleeper(ctx: SingletonContext[None]) -> None:
        for day in range(DAYS):
            await ctx.sleep(DAY)
            woken.append(f"singleton {day}")

    @registry.cron("0 0 1 1 *", name="sleeper", skip_if_older_than=timedelta(days=365))
    async def tick(tick: Tick) -> None:
        for day in range(DAYS):
            await tick.sleep(DAY)
            await tick.step(f"day {day}", woken.append, f"tick {day}")

    return registry


async def _asleep(pods: Pods, day: int) -> None:
    """Wait until all of them have written down until when they sleep that day."""

    async def all_sleep() -> bool:
        counters = [pod.joined_runner().executions.counters for pod in pods]
        return sum(one.parks for one in counters) == 2 * (day + 1)

    await until(all_sleep, what=f"the entity and the tick sleep for day {day}")


async def test_sleeps_of_days_take_no_time_where_the_clock_is_moved() -> None:
    woken: list[str] = []
    async with local_cluster(pods=2, entities=[Order], include=[_sleepers(woken)]) as pods:
        receipt = await pods[0].entity(Order, "a").nap_days.send(DAYS)
        await pods[0].crons.trigger("sleeper")
        with anyio.fail_after(60):
            for day in range(DAYS):
                await _asleep(pods, day)
                await until(lambda day=day: len(woken) == 2 * day, what="nobody woke too early")
                await pods.clock.advance(DAY - timedelta(minutes=1))
                await pods.poll()
                assert len(woken) == 2 * day
                await pods.clock.advance(timedelta(minutes=1))
                await until(lambda day=day: len(woken) == 2 * (day + 1), what=f"woken on day {day}")
            assert await receipt.result() == DAYS
    assert sorted(woken) == sorted(f"{who} {day}" for who in ("singleton", "tick") for day in range(DAYS))
