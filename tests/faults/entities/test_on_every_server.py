"""The core of it on each kind of server: an owner killed, hand-offs, sends of turns, nothing left."""

from __future__ import annotations

import pytest

from .fleet import Fleet
from .load import Load

pytestmark = pytest.mark.faults
IDS = ("a", "b", "c", "d")


async def test_owners_that_die_and_leave(any_fleet: Fleet) -> None:
    fleet = any_fleet
    await fleet.join("pod0", "pod1")
    load = Load(fleet, IDS, call=lambda keeper, mark: keeper.pass_on(mark, ["target"]))
    async with load:
        await load.acknowledged(20)
        killed = await fleet.owner("a")
        await fleet.pods[killed].kill()
        await load.acknowledged(20)
        await fleet.join("pod2")
        await load.acknowledged(20)
        await fleet.leave(next(name for name in fleet.pods if name not in (killed, "pod2")))
        await load.acknowledged(20)
    await fleet.drained()
    (await load.judge()).require(accepted=80, ordered_pairs=60)
    for id in IDS:
        assert await fleet.passed_on("target", id) == await fleet.applied(id)
    await fleet.only_state_stays()
