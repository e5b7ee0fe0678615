"""Several pods in one process, and their clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from redis_cluster_kit import Settings, ShardSettings
from redis_cluster_kit.testing import Pods, local_cluster, until

from .accounts import Account


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


async def test_settings_are_the_tests_own() -> None:
    settings = Settings(shards=ShardSettings(per_group=5))
    async with local_cluster(pods=1, entities=[Account], settings=settings) as pods:
        runner = pods[0].joined_runner()
        assert runner.ownership is not None
        assert len(runner.ownership.owned) == 5
