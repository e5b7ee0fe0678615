"""Pods that are killed, stopped and woken, or leave politely, under load: nothing lost, twice, or out of order."""

from __future__ import annotations

import anyio
import pytest

from redis_cluster_kit.testing import until

from .fleet import Fleet
from .load import Load

pytestmark = pytest.mark.faults
IDS = ("a", "b", "c", "d")


async def test_the_owner_killed_ten_times_under_load(fleet: Fleet) -> None:
    await fleet.join("pod0", "pod1")
    load = Load(fleet, IDS)
    async with load:
        await load.acknowledged(50)
        for kill in range(10):
            victim = await fleet.owner(IDS[kill % len(IDS)])
            await fleet.pods[victim].kill()
            await load.acknowledged(10)
            await fleet.join(f"pod{kill + 2}")
        await load.acknowledged(50)
    killed = [pod for pod in fleet.pods.values() if pod.returncode == -9]
    assert len(killed) == 10
    await fleet.drained()
    (await load.judge()).require(accepted=200, ordered_pairs=100, lengths=100)
    await fleet.only_state_stays()
