"""Pods that are killed, stopped and woken, or leave politely, under load: all exactly once, in order."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from redis_cluster_kit.redis_access import Script
from redis_cluster_kit.testing import Proxy, command, until

from .fleet import GUARD, Fleet
from .load import Load
from .pod import Keeper

pytestmark = pytest.mark.faults
IDS = ("a", "b", "c", "d")
COMMIT = Script.load("turn/commit")


async def test_the_owner_killed_ten_times_under_load(fleet: Fleet) -> None:
    await fleet.join("pod0", "pod1")
    load = Load(fleet, IDS)
    async with load:
        await load.acknowledged(50)
        for kill in range(10):
            victim = await fleet.owner(IDS[kill % len(IDS)])
            await fleet.pods[victim].kill()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fleet.join, f"pod{kill + 2}")
                await load.acknowledged(10)
        await load.acknowledged(50)
    killed = [pod for pod in fleet.pods.values() if pod.returncode == -9]
    assert len(killed) == 10
    await fleet.drained()
    (await load.judge()).require(accepted=200, ordered_pairs=100, lengths=100)
    await fleet.only_state_stays()


@pytest.mark.parametrize("rpc", ["slow", "block"])
async def test_an_owner_stopped_in_a_turn_past_its_lease(fleet: Fleet, rpc: str) -> None:
    await fleet.join("pod0", "pod1")
    sender = await fleet.sender()
    load = Load(fleet, IDS[:2])
    async with load:
        await load.acknowledged(20)
        first = await fleet.owner("z")
        ask = asyncio.create_task(getattr(sender.entity(Keeper, "z"), rpc)("mark", 0.4))
        await fleet.pods[first].wait_for("holding")
        await fleet.pods[first].stop()
        assert await fleet.applied("z") == [], "it was stopped after its turn"
        other = next(name for name in fleet.pods if name != first)
        await fleet.pods[other].wait_for("holding", timeout=GUARD)
        assert await ask == 1
        await fleet.pods[first].wake()
        await load.acknowledged(50)

        async def stepped_down() -> bool:
            return (await fleet.report(first))["shards_lost"] > 0

        await until(stepped_down, timeout=GUARD, what="the stopped pod to find its shards lost")
    await fleet.drained()
    assert await fleet.applied("z") == ["mark"]
    (await load.judge()).require(accepted=50, ordered_pairs=30)


async def test_a_commit_that_arrives_after_a_takeover_is_refused(fleet: Fleet, proxy: Proxy) -> None:
    """Whoever looks at a clock may look too early: here the fence alone stands in the way."""
    await fleet.join("stale", redis=proxy.url())
    sender = await fleet.sender()
    ask = asyncio.create_task(sender.entity(Keeper, "z").slow("mark", 0.3))
    await fleet.pods["stale"].wait_for("holding")
    with proxy.hold("to_server") as held:
        await fleet.join("new")
        assert await asyncio.wait_for(ask, GUARD) == 1
    held.assert_fired()
    await fleet.drained()
    assert await fleet.applied("z") == ["mark"]
    await fleet.pods["new"].wait_for("holding")


async def test_an_ask_answers_though_its_owner_died_after_the_commit(fleet: Fleet, proxy: Proxy) -> None:
    await fleet.join("owner", redis=proxy.url())
    sender = await fleet.sender()
    keeper = sender.entity(Keeper, "z")
    assert await keeper.add("first") == 1
    lost = proxy.lose_reply(command("EVALSHA", "EVAL", sha=COMMIT.sha), then="silent")
    ask = asyncio.create_task(keeper.add("second"))
    await until(lambda: lost.count, what="the commit's reply to be lost")
    await fleet.pods["owner"].kill()
    assert await asyncio.wait_for(ask, GUARD) == 2
    assert sender._runner is not None
    assert sender._runner.messaging.caller.counters.lookups > 0
    await fleet.join("next")
    assert await keeper.add("third") == 3
    await fleet.drained()
    assert await fleet.applied("z") == ["first", "second", "third"]


async def test_rolling_restarts_bury_nothing_and_count_no_death(fleet: Fleet) -> None:
    """A turn that is never done in time is given back at each drain: that is nobody's fault."""
    budget = {"budget": 0.2}
    fleet.ttl = 5.0  # a lease that runs out on a busy machine would be counted, and rightly
    await fleet.join("pod0", "pod1", **budget)
    sender = await fleet.sender()
    await sender.entity(Keeper, "z").slow.send("long", 3600.0)
    load = Load(fleet, IDS)
    async with load:
        for restart in range(5):
            await load.acknowledged(10)
            holder = await fleet.owner("z")
            await fleet.pods[holder].wait_for("holding", timeout=GUARD)
            await fleet.join(f"pod{restart + 2}", **budget)
            await fleet.leave(holder)
            assert await fleet.deaths("z") == 0
        await load.acknowledged(20)
    await until(lambda: held_by(fleet) >= 5, timeout=GUARD, what="the long turn to be begun by everybody")
    assert [text for text in (await fleet.markers()).values() if text[0] == "d"] == []
    assert not load.errors.keys() - {"MailboxFullError"}
    await sender.reset(Keeper, "z")
    await fleet.drained()
    assert await fleet.applied("z") == []
    (await load.judge()).require(accepted=80, ordered_pairs=60)
    assert (await fleet.kinds())["dead"] == 0


def held_by(fleet: Fleet) -> int:
    return sum(any(event.name == "holding" for event in pod.events) for pod in fleet.pods.values())


async def test_only_the_killer_of_a_shared_runner_is_buried(fleet: Fleet) -> None:
    await fleet.join("pod0", "pod1")
    sender = await fleet.sender()
    # More than the pods can handle: each entity always has a message in hand that was claimed.
    load = Load(fleet, IDS, pause=0.02, call=lambda keeper, mark: keeper.slow.send(mark, 0.05))
    async with load:
        await load.acknowledged(20)
        receipt = await sender.entity(Keeper, "k").kill.send("killer")
        started = 2
        while not (await fleet.kinds())["dead"]:
            dead = [pod for pod in fleet.pods.values() if pod.returncode is not None]
            for _ in range(started - len(dead), 2):
                await fleet.join(f"pod{started}")
                started += 1
            await asyncio.sleep(0.02)
        await load.acknowledged(20)
    killings = [event for pod in fleet.pods.values() for event in pod.events if event.name == "killing"]
    dead = [pod for pod in fleet.pods.values() if pod.returncode is not None]
    for pod in dead:
        assert await pod.wait() == 9
    assert len(killings) == len(dead)
    assert 5 <= len(dead) <= 6, "the first time it may have come with a nudge, which counts for nothing"
    again = [
        event for pod in fleet.pods.values() for event in pod.events if event.fields.get("attempt", 1) > 1
    ]
    assert again, "no innocent was ever in hand when the runner died"
    (letter,) = await sender.dead_letters.list()
    assert (letter.message_id, letter.deaths) == (receipt.message_id, 5)
    assert await sender.dead_letters.drop(receipt.message_id)
    await fleet.drained()
    (await load.judge()).require(accepted=40, ordered_pairs=20)
    await fleet.only_state_stays()


async def test_what_turns_send_arrives_once_and_in_order_though_pods_die(fleet: Fleet) -> None:
    """Sources and targets live on both pods: relays die between delivery and removal too."""
    targets = ["t0", "t1"]
    await fleet.join("pod0", "pod1")
    load = Load(fleet, IDS, call=lambda keeper, mark: keeper.pass_on.send(mark, targets))
    async with load:
        for kill in range(3):
            await load.acknowledged(40)
            await fleet.pods[await fleet.owner(IDS[kill])].kill()
            await fleet.join(f"pod{kill + 2}")
        await load.acknowledged(40)
    await fleet.drained()
    (await load.judge()).require(accepted=100, ordered_pairs=50)
    for target in targets:
        for id in IDS:
            assert await fleet.passed_on(target, id) == await fleet.applied(id)
    await fleet.only_state_stays()
