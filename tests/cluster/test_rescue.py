"""Shards whose planned owner cannot take them: rescued by others, given back later, never moved in vain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from redis_cluster_kit import Cluster, PersistenceFailedError, ShardId
from redis_cluster_kit.clock import Clock
from redis_cluster_kit.ownership import Ownership
from redis_cluster_kit.testing import until

from .conftest import MakeCluster

TTL = 1.0
"""What the fixture's settings have."""


def ownership(cluster: Cluster) -> Ownership:
    assert cluster._runner is not None
    assert cluster._runner.ownership is not None
    return cluster._runner.ownership


async def owns(cluster: Cluster, number: int) -> None:
    held = ownership(cluster)
    await until(lambda: len(held.owned) == number, timeout=30, what=f"{number} shards owned")


async def no_database(shards: Iterable[ShardId], *, timeout: float) -> dict[ShardId, int]:
    raise PersistenceFailedError(store="database", detail="not from here")


async def no_grants(*, timeout: float) -> bool:
    return False


async def test_what_its_owner_cannot_take_is_rescued_and_given_back(make_cluster: MakeCluster) -> None:
    async with make_cluster() as able:
        await owns(able, 12)
        async with make_cluster() as sick:
            fences: Any = ownership(sick)._fences
            fences.establish = no_database
            await until(lambda: len(ownership(able).owned) == 6, timeout=30, what="a hand-off begun")
            given = Clock.boot()
            await owns(able, 12)
            assert Clock.boot() - given >= TTL / 2, "free for a whole TTL before anybody else takes it"
            assert "not from here" in ownership(sick).trouble["fence grants"]
            del fences.establish
            await owns(sick, 6)
            await owns(able, 6)
            await until(lambda: not ownership(sick).trouble, what="no trouble left")
            assert (await sick.health()).ready


async def test_nothing_is_handed_off_while_nobody_could_take_it(make_cluster: MakeCluster) -> None:
    async with make_cluster() as present:
        await owns(present, 12)
        fences: Any = ownership(present)._fences
        fences.can_grant = no_grants
        async with make_cluster() as newcomer:
            await until(lambda: len(ownership(newcomer).missing) == 6, what="the newcomer's plan")
            assert newcomer.joined_runner().read().shards_missing == 6
            looks = Clock.boot() + 2 * TTL
            await until(lambda: Clock.boot() > looks, what="many looks")
            assert len(ownership(present).owned) == 12
            del fences.can_grant
            await owns(present, 6)
            await owns(newcomer, 6)


async def test_runners_that_plan_differently_agree_again(make_cluster: MakeCluster) -> None:
    async with make_cluster() as right, make_cluster() as wrong:
        await owns(right, 6)
        await owns(wrong, 6)
        plan = ownership(wrong)._plan
        everything = dict(plan)
        plan.update(dict.fromkeys(plan, right.runner_id))
        await until(lambda: not ownership(wrong).owned, timeout=30, what="it gives away what nobody expects")
        await until(lambda: ownership(wrong)._plan == everything, timeout=30, what="its plan made anew")
        await owns(wrong, 6)
        await owns(right, 6)
        await until(
            lambda: not ownership(wrong).missing and not ownership(right).missing, what="an agreement"
        )


async def test_a_clean_end_that_cannot_be_noted_leaves_no_trouble(make_cluster: MakeCluster) -> None:
    async with make_cluster() as leaving, make_cluster() as staying:
        await owns(leaving, 6)
        keys: Any = ownership(leaving)._keys

        async def unreachable(fences: object) -> None:
            raise PersistenceFailedError(store="redis", detail="no answer")

        keys.close = unreachable
        leaving.begin_drain()
        await owns(leaving, 0)
        await owns(staying, 12)
        assert "release" not in ownership(leaving).trouble


@pytest.mark.parametrize("failures", [1, 10, 5_000])
async def test_backing_off_has_a_bound(make_cluster: MakeCluster, failures: int) -> None:
    async with make_cluster() as cluster:
        held = ownership(cluster)
        held._failed_takes = failures
        held._back_off(failed=True)
        assert 0 < held._take_after - Clock.boot() <= TTL
