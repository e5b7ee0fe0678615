"""Several pods in one process, and their clock."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest

from redis_cluster_kit import Registry, Settings, ShardSettings, SingletonContext
from redis_cluster_kit.testing import Pods, local_cluster, until

from .accounts import Account, Ledger


@pytest.fixture
async def pods() -> AsyncIterator[Pods]:
    async with local_cluster(pods=3, entities=[Account]) as running:
        yield running


async def test_every_pod_reaches_every_entity(pods: Pods) -> None:
    for number, pod in enumerate(pods):
        assert await pod.entity(Account, "alice").deposit(1) == number + 1
    owners = {await pods[0].owner_of(Account, f"id-{number}") for number in range(60)}
    assert owners == {pod.runner_id for pod in pods}


async def test_what_is_due_in_an_hour_comes_at_once(pods: Pods) -> None:
    alice = pods[0].entity(Account, "alice")
    receipt = await alice.deposit.options(delay=timedelta(hours=1)).send(5)
    assert await alice.deposit(1) == 1
    await pods.clock.advance(timedelta(hours=1))
    assert await receipt.result(timeout=10) == 6


async def test_idle_entities_leave_memory_when_the_clock_is_moved(pods: Pods) -> None:
    await pods[0].entity(Account, "alice").deposit(1)
    await pods.settle()
    assert sum(len(host.residents) for host in pods.hosts()) == 1
    await pods.clock.advance(timedelta(minutes=11))
    await until(lambda: not any(len(host.residents) for host in pods.hosts()), what="nobody in memory")
    assert await pods[1].entity(Account, "alice").deposit(1) == 2


async def test_a_killed_pods_entities_go_on_elsewhere(pods: Pods) -> None:
    ids = [f"id-{number}" for number in range(30)]
    for id in ids:
        await pods[0].entity(Account, id).deposit(1)
    await pods.kill(1)
    assert len(pods) == 2
    for id in ids:
        assert await pods[0].entity(Account, id).deposit(1) == 2
    await pods.settle()


async def test_a_stopped_pod_hands_its_shards_over(pods: Pods) -> None:
    await pods[0].entity(Account, "alice").deposit(1)
    await pods.stop(0)
    assert await pods[0].entity(Account, "alice").deposit(1) == 2
    await pods.settle()


async def test_three_pods_are_up_soon() -> None:
    """In a few hundred milliseconds; the best of three, for a busy machine may take ten times as long."""
    seconds: list[float] = []
    for _ in range(3):
        began = time.monotonic()
        async with local_cluster(pods=3, entities=[Account]) as pods:
            seconds.append(time.monotonic() - began)
            assert len(pods) == 3
    assert min(seconds) < 2.0, seconds


async def test_settings_are_the_tests_own() -> None:
    settings = Settings(shards=ShardSettings(per_group=5))
    async with local_cluster(pods=1, entities=[Account], settings=settings) as pods:
        runner = pods[0].joined_runner()
        assert runner.ownership is not None
        assert len(runner.ownership.owned) == 5


async def test_singletons_follow_the_clock_too() -> None:
    """Their rounds, and their heartbeat, which comes every 30 s."""
    registry = Registry()

    @registry.singleton("hourly", state=Ledger)
    async def hourly(ctx: SingletonContext[Ledger]) -> None:
        async for _ in ctx.every(timedelta(hours=1)):
            await ctx.update(balance=ctx.state.balance + 1)

    async with local_cluster(pods=2, include=[registry]) as pods:

        async def rounds() -> int:
            found = await pods[0].singleton_state("hourly", Ledger)
            return 0 if found is None else found.state.balance

        # A busy machine may cost a leader its lease, and the next one begins with a round: hence no equality.
        await until(rounds, what="the first round")
        for _ in range(2):
            before = await rounds()
            await pods.clock.advance(timedelta(hours=1))
            await until(lambda seen=before: _is_above(rounds, seen), what="another round")  # type: ignore[misc]

        async def beat() -> float:
            kept = await pods[0].singleton_metadata("hourly", fresh=True)
            return 0.0 if kept is None or kept.heartbeat is None else kept.heartbeat.timestamp()

        beaten = await beat()
        await pods.clock.advance(timedelta(seconds=31))
        await until(lambda: _is_above(beat, beaten + 30), what="a heartbeat")


async def _is_above(ask: Callable[[], Awaitable[float]], limit: float) -> bool:
    return await ask() > limit


# --- Faults ---


@pytest.fixture
async def faulty() -> AsyncIterator[Pods]:
    async with local_cluster(pods=3, entities=[Account], faults=True) as running:
        yield running


async def test_a_paused_pods_entities_go_on_elsewhere_and_it_comes_back(faulty: Pods) -> None:
    ids = [f"id-{number}" for number in range(20)]
    asking = faulty[0]
    for id in ids:
        await asking.entity(Account, id).deposit(1)
    paused = faulty[1]
    with faulty.pause(1) as pause:
        for id in ids:
            assert await asking.entity(Account, id).deposit(1) == 2
        pause.assert_fired()
        await faulty.settle()  # of those that are awake
        assert paused.runner_id not in {await asking.owner_of(Account, id) for id in ids}
    await faulty.settle()
    for id in ids:
        assert await paused.entity(Account, id).deposit(1) == 3

    async def owns() -> bool:
        return any(paused.is_local(Account, id) for id in ids)

    await until(owns, what="its share again")


async def test_a_paused_pod_can_be_killed(faulty: Pods) -> None:
    await faulty[0].entity(Account, "alice").deposit(1)
    faulty.pause(2)
    await faulty.kill(2)
    assert await faulty[0].entity(Account, "alice").deposit(1) == 2
    await faulty.settle()


@pytest.mark.parametrize("step", ["send", "commit", "mailbox/claim"])
async def test_a_lost_reply_changes_nothing(step: str) -> None:
    async with local_cluster(pods=1, entities=[Account], faults=True) as pods:
        alice = pods[0].entity(Account, "alice")
        lost = pods.lose_reply(0, step)
        assert [await alice.deposit(1) for _ in range(5)] == [1, 2, 3, 4, 5]
        await until(lambda: lost.count, what="a lost reply")
        assert await alice.deposit(1) == 6
        lost.assert_fired(1)


async def test_faults_need_proxies(pods: Pods) -> None:
    for fault in (pods.pause, pods.lose_reply):
        with pytest.raises(RuntimeError, match="faults=True"):
            fault(0)
