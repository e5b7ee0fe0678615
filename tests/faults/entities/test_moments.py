"""Faults at one chosen moment: callers cancelled at each step, a relay that dies before a removal."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from redis_cluster_kit.redis_access import Script
from redis_cluster_kit.testing import Proxy, command, until

from .fleet import GUARD, STAY, Fleet
from .pod import Keeper

pytestmark = pytest.mark.faults
REMOVE = Script.load("outbox/remove")
STEPS = 40


async def ask(keeper: Any, mark: str) -> None:
    await keeper.add(mark)


async def send(keeper: Any, mark: str) -> None:
    await keeper.add.send(mark)


async def ask_for_long(keeper: Any, mark: str) -> None:
    await keeper.slow(mark, 0.0)


@pytest.mark.parametrize("call", [ask, send, ask_for_long])
async def test_callers_cancelled_at_every_step(
    fleet: Fleet, call: Callable[[Any, str], Coroutine[Any, Any, None]]
) -> None:
    """Whether it ran is not known then; but it ran at most once, and everybody else goes on."""
    await fleet.sender()
    async with fleet.hosting_here(fleet.redis) as host:
        keeper = host.entity(Keeper, "a")
        await keeper.add("begin")
        ended: Counter[str] = Counter()
        acknowledged: list[str] = []
        for steps in range(STEPS):
            mark = f"cancelled {steps}"
            caller = asyncio.create_task(call(keeper, mark))
            beside = asyncio.create_task(keeper.add(f"beside {steps}"))
            for _ in range(steps):
                await asyncio.sleep(0)
            caller.cancel()
            await asyncio.wait((caller,))
            ended["cancelled" if caller.cancelled() else "done"] += 1
            if not caller.cancelled():
                caller.result()
                acknowledged.append(mark)
            await asyncio.wait_for(beside, GUARD)
            await asyncio.wait_for(keeper.add(f"after {steps}"), GUARD)
        await fleet.drained()
        await fleet.only_state_stays()
    marks = await fleet.applied("a")
    assert len(marks) == len(set(marks))
    assert [mark for mark in marks if mark.startswith("after")] == [f"after {n}" for n in range(STEPS)]
    assert [mark for mark in marks if mark.startswith("beside")] == [f"beside {n}" for n in range(STEPS)]
    assert set(acknowledged) <= set(marks)
    ran = [mark for mark in marks if mark.startswith("cancelled") and mark not in acknowledged]
    assert ended["cancelled"] > len(ran) > 0, "some were cancelled before they ran, some after"


async def test_a_relay_that_dies_between_delivery_and_removal(fleet: Fleet, proxy: Proxy) -> None:
    await fleet.join("pod0", redis=proxy.url())
    sender = await fleet.sender()
    source = sender.entity(Keeper, "source")
    await source.pass_on("0", ["target"])
    await fleet.drained()
    lost = proxy.lose_command(command("EVALSHA", "EVAL", sha=REMOVE.sha), then="silent")
    for number in range(1, 4):
        await source.pass_on.send(str(number), ["target"])
    await until(lambda: lost.count, timeout=GUARD, what="a removal to be lost")
    await fleet.pods["pod0"].kill()
    lost.assert_fired(1)
    assert len(await fleet.applied("target")) + await fleet.depth("target") > 1, "something was delivered"
    assert not await fleet.sent_nothing(), "and is still in the outbox"
    await fleet.join("pod1")
    await fleet.drained()
    assert await fleet.applied("source") == ["0", "1", "2", "3"]
    assert await fleet.passed_on("target", "source") == ["0", "1", "2", "3"]


async def test_nothing_but_state_stays_when_the_windows_have_passed(fleet: Fleet) -> None:
    fleet.window = 1.0
    sender = await fleet.sender()
    async with fleet.hosting_here(fleet.redis):
        for id in ("a", "b"):
            await sender.entity(Keeper, id).pass_on("mark", ["target"])
        delayed = sender.entity(Keeper, "c").add.options(delay=timedelta(milliseconds=20))
        await (await delayed.send("mark")).result()
        await fleet.drained()

    async def rest() -> bool:
        return set(await fleet.kinds()) <= STAY | {"members", "alive", "version", "inbox"}

    await until(rest, timeout=GUARD, every=0.1, what="only state to stay")
    assert (await fleet.kinds())["entity"] == 4
