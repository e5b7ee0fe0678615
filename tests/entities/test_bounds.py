"""A mailbox holds what its capacity says and never one more; what is refused is refused, never dropped."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from redis_cluster_kit import Entity, MailboxFullError, MailboxSettings, rpc
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import ChildProcess, until

from .conftest import MakeCluster, keys_of, mailboxes_of, put_raw, quick, raw_parcel
from .flooding import PROCESSES, Flooded

PROGRAM = f"{Path(__file__).parent / 'flooding.py'}:main"


class Gated(Entity[None], mailbox_capacity=3):
    gate: asyncio.Event
    heard: list[str]

    @rpc
    async def hear(self, name: str) -> str:
        await Gated.gate.wait()
        Gated.heard.append(name)
        return name


class Unbounded(Entity[None]):
    """As the settings say."""

    @rpc
    async def hear(self, text: str) -> int:
        return len(text)


@pytest.fixture(autouse=True)
def closed_gate() -> None:
    Gated.gate, Gated.heard = asyncio.Event(), []


async def test_exact_under_a_flood_from_eight_processes(
    make_cluster: MakeCluster, valkey: RedisServer, sqlite_url: str, namespace: str
) -> None:
    """Nobody takes anything out: accepted + refused = sent, and exactly the capacity was accepted."""
    given = {"redis": valkey.url, "database": sqlite_url, "namespace": namespace, "count": 50}
    async with make_cluster(hosting=False) as cluster:
        async with ChildProcess(PROGRAM, json.dumps(given)) as child:
            over = await child.wait_for("over", timeout=120)
            assert over["codes"] == [0] * PROCESSES
            assert await child.wait() == 0
            counts = [event for event in child.events if event.name == "done"]
        assert len(counts) == PROCESSES
        accepted = sum(count["accepted"] for count in counts)
        refused = sum(count["refused"] for count in counts)
        assert (accepted, refused) == (100, 300)
        assert sum(count["accepted"] > 0 for count in counts) >= 2  # it was a race
        shard = cluster.shard_of(Flooded, "f")
        assert await mailboxes_of(cluster).depth(shard, "flooded:f") == 100


async def test_one_more_is_refused_until_one_is_done(make_cluster: MakeCluster) -> None:
    async with make_cluster(Gated) as cluster:
        gated = cluster.entity(Gated, "g")
        receipts = [await gated.hear.send(name) for name in "abc"]
        for call in (gated.hear.send("d"), gated.hear("d")):
            with pytest.raises(MailboxFullError) as caught:
                await call
            assert caught.value.capacity == 3
            assert caught.value.entity_id == "g"
            assert caught.value.is_retryable
        assert await cluster.entity(Gated, "other").hear.send("x")  # others have their own
        Gated.gate.set()
        assert [await receipt.result() for receipt in receipts] == list("abc")
        assert await gated.hear("d") == "d"


async def test_the_default_capacity_is_a_setting(make_cluster: MakeCluster) -> None:
    settings = quick(mailbox=MailboxSettings(capacity=2))
    async with make_cluster(hosting=False, settings=settings) as cluster:
        entity = cluster.entity(Unbounded, "u")
        await entity.hear.send("a")
        await entity.hear.send("b")
        with pytest.raises(MailboxFullError):
            await entity.hear.send("c")


async def test_a_repeated_id_of_a_full_mailbox_is_known(make_cluster: MakeCluster) -> None:
    async with make_cluster(Gated) as cluster:
        gated = cluster.entity(Gated, "g")
        keyed = gated.hear.options(idempotency_key="k")
        first = await keyed.send("a")
        for name in "bc":
            await gated.hear.send(name)
        with pytest.raises(MailboxFullError):
            await gated.hear.send("d")
        again = await keyed.send("a")
        assert again.message_id == first.message_id
        Gated.gate.set()
        assert await again.result() == "a"
        await until(lambda: Gated.heard == ["a", "b", "c"])


async def test_a_repeat_of_what_was_handled_gets_its_reply_though_the_mailbox_is_full(
    make_cluster: MakeCluster,
) -> None:
    async with make_cluster(Gated) as cluster:
        gated = cluster.entity(Gated, "g")
        keyed = gated.hear.options(idempotency_key="k")
        Gated.gate.set()
        assert await keyed("a") == "a"
        Gated.gate.clear()
        for name in "bcd":
            await gated.hear.send(name)
        assert await keyed("a") == "a"
        assert Gated.heard == ["a"]
        Gated.gate.set()


async def test_bytes_are_bounded_too(make_cluster: MakeCluster) -> None:
    settings = quick(mailbox=MailboxSettings(payload_limit=20_000, bytes_limit=50_000))
    async with make_cluster(hosting=False, settings=settings) as cluster:
        entity = cluster.entity(Unbounded, "u")
        for _ in range(2):
            await entity.hear.send("x" * 19_000)
        with pytest.raises(MailboxFullError):
            await entity.hear.send("x" * 19_000)
        await entity.hear.send("x" * 8_000)
        await entity.hear.send("short")
    async with make_cluster(Unbounded, settings=settings) as cluster:
        keys = keys_of(cluster, Unbounded, "u")

        async def is_weightless() -> bool:
            return not await cluster.joined_runner().commands.call(
                keys.slot, "HEXISTS", keys.live, "Unbounded:u\n"
            )

        await until(is_weightless)  # nothing of the count is left
        assert await cluster.entity(Unbounded, "u").hear("x" * 19_000) == 19_000


async def test_an_id_is_taken_once(make_cluster: MakeCluster) -> None:
    async with make_cluster(hosting=False) as cluster:
        parcel = raw_parcel(cluster, Unbounded, "u", b"\x01x")
        await put_raw(cluster, parcel)
        now = cluster.joined_runner().clock.server_ms()
        assert (await mailboxes_of(cluster).put(parcel, now + 1_000)).word == "duplicate"
        assert (await mailboxes_of(cluster).put(parcel, 1)).word == "duplicate"
        other = raw_parcel(cluster, Unbounded, "u", b"\x01x", number=2)
        assert (await mailboxes_of(cluster).put(other, 1)).word == "late"
        shard = cluster.shard_of(Unbounded, "u")
        assert await mailboxes_of(cluster).depth(shard, "Unbounded:u") == 1
