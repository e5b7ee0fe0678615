"""The data Redis restarts, forgets its scripts, has no memory left: what was acknowledged has its effect."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import ChildProcess, until

from .fleet import FLOOD, GUARD, Fleet
from .load import Load
from .pod import CAPACITY, Keeper

pytestmark = pytest.mark.faults
IDS = ("a", "b", "c")


async def test_redis_restarts_under_load(
    durable_valkey: RedisServer, postgres_url: str, namespace: str, folder: Path
) -> None:
    async with Fleet(durable_valkey.url, postgres_url, namespace, folder) as fleet:
        await fleet.join("pod0", "pod1")
        load = Load(fleet, IDS, call=lambda keeper, mark: keeper.pass_on(mark, ["target"]))
        async with load:
            for _ in range(3):
                await load.acknowledged(20)
                before = durable_valkey.pid
                durable_valkey.kill()
                durable_valkey.restart()
                assert durable_valkey.pid != before
            await load.acknowledged(20)
        await fleet.drained()
        (await load.judge()).require(accepted=80, ordered_pairs=60)
        for id in IDS:
            assert await fleet.passed_on("target", id) == await fleet.applied(id)
        await fleet.only_state_stays()


async def test_redis_stands_still_for_longer_than_anybody_waits(
    private_valkey: RedisServer, postgres_url: str, namespace: str, folder: Path
) -> None:
    """What was sent before is carried out when it goes on, by then perhaps for the second time."""
    async with Fleet(private_valkey.url, postgres_url, namespace, folder) as fleet:
        await fleet.join("pod0")
        load = Load(fleet, IDS, call=lambda keeper, mark: keeper.pass_on(mark, ["target"]))
        async with load:
            for _ in range(2):
                await load.acknowledged(20)
                lost = (await fleet.report("pod0"))["shards_lost"]
                private_valkey.pause()
                await asyncio.sleep(1.6)  # the fault itself: longer than commands wait, and than leases last
                private_valkey.resume()
                await load.acknowledged(20)
                assert (await fleet.report("pod0"))["shards_lost"] > lost
        await fleet.drained()
        (await load.judge()).require(accepted=80, ordered_pairs=60)
        for id in IDS:
            assert await fleet.passed_on("target", id) == await fleet.applied(id)
        await fleet.only_state_stays()


async def test_scripts_are_forgotten_all_the_time(
    private_valkey: RedisServer, postgres_url: str, namespace: str, folder: Path
) -> None:
    async with Fleet(private_valkey.url, postgres_url, namespace, folder) as fleet:
        await fleet.sender()
        async with fleet.hosting_here(private_valkey.url):
            load = Load(fleet, IDS)
            flushed = 0
            async with load:
                goal = asyncio.create_task(load.acknowledged(300))
                while not goal.done():
                    private_valkey.call("SCRIPT", "FLUSH")
                    flushed += 1
                    await asyncio.sleep(0.005)
                await goal
            await fleet.drained()
        assert flushed > 20
        missing = str(private_valkey.call("INFO", "errorstats"))
        assert "errorstat_NOSCRIPT" in missing, "no script was ever missing"
        assert not load.errors.keys() - {"MailboxFullError"}
        (await load.judge()).require(accepted=300, ordered_pairs=250)


async def test_a_full_redis_refuses_sends_and_drains_all_the_same(
    private_valkey: RedisServer, postgres_url: str, namespace: str, folder: Path
) -> None:
    async with Fleet(private_valkey.url, postgres_url, namespace, folder) as fleet:
        await fleet.join("pod0", "pod1")
        sender = await fleet.sender()
        tries = str(folder)
        load = Load(fleet, IDS, call=lambda keeper, mark: keeper.stumble.send(mark, 1, tries))
        async with load:
            await load.acknowledged(40)
            forwarded = await sender.entity(Keeper, "source").slow.send("first", 1.0)
            passing = await sender.entity(Keeper, "source").pass_on.send("second", ["target"])
            await until(lambda: fleet.depth(IDS[0]), timeout=GUARD, what="something to wait")
            waiting = sum([await fleet.depth(id) for id in IDS])
            private_valkey.call("CONFIG", "SET", "maxmemory", "1")
            await until(lambda: load.errors["PersistenceFailedError"] > 10, what="sends to be refused")
            await fleet.pods[await fleet.owner(IDS[0])].kill()
            await until(lambda: all_emptied(fleet), timeout=GUARD, what="every mailbox to be drained")
            assert await forwarded.result(timeout=GUARD) == 1
            assert await fleet.depth("source") == 1, "what has to send waits for memory"
            refused = load.errors["PersistenceFailedError"]
            await until(lambda: load.errors["PersistenceFailedError"] > refused + 10, what="still refused")
            private_valkey.call("CONFIG", "SET", "maxmemory", "0")
            assert await passing.result(timeout=GUARD) == 2
            await load.acknowledged(40)
        assert waiting > 0
        await fleet.drained()
        assert await fleet.applied("target") == ["source>second"]
        assert (await fleet.kinds())["dead"] == 0
        (await load.judge()).require(accepted=80, rejected=20, ordered_pairs=40)
        await fleet.only_state_stays()


@pytest.mark.long
async def test_a_flood_from_eight_processes(fleet: Fleet) -> None:
    """Nobody serves the entity: exactly as many get in as there is room for."""
    await fleet.sender()
    given = {**fleet.options, "sends": 200, "id": "a"}
    async with AsyncExitStack() as stack:
        floods = [ChildProcess(FLOOD, json.dumps({**given, "name": f"f{n}"}), name=f"f{n}") for n in range(8)]
        for flood in floods:
            await stack.enter_async_context(flood)
        told = Counter[str]()
        for flood in floods:
            told.update((await flood.wait_for("told", timeout=3 * GUARD))["told"])
    assert told == {"accepted": CAPACITY, "rejected": 8 * 200 - CAPACITY}
    assert await fleet.depth("a") == CAPACITY
    await fleet.join("pod0")
    await fleet.drained()
    assert len(await fleet.applied("a")) == CAPACITY


async def all_emptied(fleet: Fleet) -> bool:
    return not any([await fleet.depth(id) for id in IDS])


async def test_a_flood_meets_the_bound(fleet: Fleet) -> None:
    """More senders than a mailbox has places: it is filled to the last of them, and never beyond."""
    await fleet.join("pod0")
    load = Load(fleet, ("a",), senders=40, pause=0.0, call=lambda keeper, mark: keeper.slow.send(mark, 0.02))
    async with load:
        await load.acknowledged(60)
        await until(lambda: load.errors["MailboxFullError"] > 100, timeout=GUARD, what="refusals")
    await fleet.drained()
    verdict = (await load.judge()).require(accepted=60, rejected=100, lengths=10)
    assert verdict.examined["longest"] == CAPACITY
