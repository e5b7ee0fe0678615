"""Receipts and waiting: results later and from elsewhere, withdrawing, timeouts that say how far it got."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from redis_cluster_kit import (
    Cluster,
    DedupeSettings,
    Entity,
    EntitySettings,
    HandlerFailedError,
    SendTimeoutError,
    UnknownError,
    rpc,
)
from redis_cluster_kit.testing import until

from .account import Account, Insufficient
from .conftest import MakeCluster, mailboxes_of, quick


class Slow(Entity[None]):
    """Runs as long as the test wants."""

    gate: asyncio.Event
    released: set[str]
    begun: list[str]

    @rpc
    async def work(self, name: str) -> str:
        Slow.begun.append(name)
        await until(lambda: Slow.gate.is_set() or name in Slow.released)
        return name


@pytest.fixture(autouse=True)
def closed_gate() -> None:
    Slow.gate, Slow.released, Slow.begun = asyncio.Event(), set(), []


async def test_a_stored_id_gets_the_result_on_another_pod(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as cluster, make_cluster(hosting=False) as other:
        receipt = await cluster.entity(Account, "alice").deposit.send(10)
        found = other.receipt(receipt.message_id, int)
        assert found.message_id == receipt.message_id
        assert await found.result(timeout=5) == 10
        assert await found.result() == 10  # as often as one likes


async def test_a_declared_error_comes_by_id_where_its_class_is_known(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as cluster:
        receipt = await cluster.entity(Account, "alice").withdraw.send(10)
        with pytest.raises(Insufficient):
            await cluster.receipt(receipt.message_id, int).result()


async def test_a_result_that_comes_later(make_cluster: MakeCluster) -> None:
    async with make_cluster(Slow) as cluster:
        receipt = await cluster.entity(Slow, "s").work.send("a")
        waiting = asyncio.create_task(receipt.result())
        await until(lambda: Slow.begun == ["a"])
        assert not waiting.done()
        Slow.gate.set()
        assert await waiting == "a"


async def test_a_failure_by_receipt(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as cluster:
        receipt = await cluster.entity(Account, "alice").fail.send("no luck")
        with pytest.raises(HandlerFailedError, match="no luck"):
            await receipt.result()


async def test_after_the_window_it_is_unknown(make_cluster: MakeCluster) -> None:
    settings = quick(dedupe=DedupeSettings(generated=timedelta(seconds=2)))
    async with make_cluster(Account, settings=settings) as cluster:
        receipt = await cluster.entity(Account, "alice").deposit.send(10)
        assert await receipt.result() == 10

        async def is_forgotten() -> bool:
            try:
                await receipt.result()
            except UnknownError:
                return True
            return False

        await until(is_forgotten, every=0.05)
        with pytest.raises(UnknownError, match="not remembered"):
            await cluster.receipt(receipt.message_id, int).result()


async def test_an_id_of_a_message_that_never_was(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as cluster:
        with pytest.raises(UnknownError):
            await cluster.receipt("0123456789ab-1@default:account:alice", int).result(timeout=10)


# --- Withdrawing ---


async def test_cancelled_before_it_began_it_has_no_effect(make_cluster: MakeCluster) -> None:
    async with make_cluster(Slow) as cluster, make_cluster(hosting=False) as other:
        slow = cluster.entity(Slow, "s")
        first, second, third = [await slow.work.send(name) for name in ("a", "b", "c")]
        await until(lambda: Slow.begun == ["a"])
        assert await other.cancel(second.message_id)
        assert await other.cancel(second.message_id)  # it still is
        Slow.gate.set()
        assert await third.result() == "c"
        assert Slow.begun == ["a", "c"]
        with pytest.raises(UnknownError, match="withdrawn"):
            await second.result()
        assert not await cluster.cancel(first.message_id)


async def test_a_withdrawn_ask_is_not_put_again(make_cluster: MakeCluster) -> None:
    """Whoever waits for it looks for it, does not find it waiting, and must not bring it back."""
    async with make_cluster(Slow) as cluster, make_cluster(hosting=False) as other:
        slow = cluster.entity(Slow, "s")
        first = await slow.work.send("a")
        await until(lambda: Slow.begun == ["a"])
        keyed = slow.work.options(idempotency_key="once")
        ask = asyncio.create_task(keyed("b"))
        await until(partial(_holds, cluster, 2))
        receipt = await keyed.send("b")  # put once under its key: this only tells which one it is
        assert await other.cancel(receipt.message_id)
        with pytest.raises(UnknownError, match="withdrawn"):
            await ask
        Slow.gate.set()
        assert await first.result() == "a"
        assert Slow.begun == ["a"]
        assert await keyed("c") == "c"  # the key is free for another call
        assert Slow.begun == ["a", "c"]


async def _holds(cluster: Cluster, number: int) -> bool:
    shard = cluster.shard_of(Slow, "s")
    return await mailboxes_of(cluster).depth(shard, "Slow:s") == number


async def test_a_reset_withdraws_what_is_asked(make_cluster: MakeCluster) -> None:
    async with make_cluster(Slow) as cluster:
        slow = cluster.entity(Slow, "s")
        await slow.work.send("a")
        await until(lambda: Slow.begun == ["a"])
        ask = asyncio.create_task(slow.work("b"))
        await until(partial(_holds, cluster, 2))
        await cluster.reset(Slow, "s")
        with pytest.raises(UnknownError, match="reset"):
            await ask
        Slow.gate.set()
        assert await slow.work("c") == "c"
        assert "b" not in Slow.begun


async def test_cancelled_while_it_runs_is_too_late(make_cluster: MakeCluster) -> None:
    async with make_cluster(Slow) as cluster:
        first = await cluster.entity(Slow, "s").work.send("a")
        await until(lambda: Slow.begun == ["a"])
        assert not await cluster.cancel(first.message_id)
        Slow.gate.set()
        assert await first.result() == "a"


async def test_cancelled_means_without_effect(make_cluster: MakeCluster) -> None:
    """What came with its nudge is noted as taken only when its turn waits for others: it may be withdrawn."""
    async with make_cluster(Account) as cluster:
        alice = cluster.entity(Account, "alice")
        await alice.deposit(1)
        withdrawn = 0
        for _ in range(50):
            receipt = await alice.deposit.send(1)
            withdrawn += await cluster.cancel(receipt.message_id)
        assert await alice.balance() == 51 - withdrawn


# --- Waiting ---


async def test_a_timeout_says_how_far_it_got(make_cluster: MakeCluster) -> None:
    async with make_cluster(Slow) as cluster:
        slow = cluster.entity(Slow, "s")
        first = await slow.work.send("a")
        await until(lambda: Slow.begun == ["a"])
        with pytest.raises(SendTimeoutError, match="in its mailbox") as caught:
            await slow.work.options(timeout=0.4)("b")
        assert caught.value.timeout == 0.4
        Slow.gate.set()
        assert await first.result() == "a"
        await until(lambda: Slow.begun == ["a", "b"])  # the timeout has not withdrawn it


async def test_a_timeout_names_who_has_taken_it(make_cluster: MakeCluster) -> None:
    async with make_cluster(Slow) as cluster:
        slow = cluster.entity(Slow, "s")
        first, second = [await slow.work.send(name) for name in ("a", "b")]
        await until(lambda: Slow.begun == ["a"])
        Slow.released.add("a")
        await until(lambda: Slow.begun == ["a", "b"])  # claimed with the commit of the first
        with pytest.raises(SendTimeoutError, match=f"taken by {cluster.runner_id} at attempt 1"):
            await second.result(timeout=0.2)
        Slow.gate.set()
        assert await first.result() == "a"


async def test_no_timeout_waits(make_cluster: MakeCluster) -> None:
    async with make_cluster(Slow) as cluster:
        slow = cluster.entity(Slow, "s")
        waiting = asyncio.create_task(slow.work.options(timeout=None)("a"))
        await until(lambda: Slow.begun == ["a"])
        looked = cluster.joined_runner().messaging.caller.counters
        await until(lambda: looked.lookups >= 2)  # it has looked after its message meanwhile
        Slow.gate.set()
        assert await waiting == "a"


async def test_the_default_timeout_is_a_setting(make_cluster: MakeCluster) -> None:
    settings = quick(entities=EntitySettings(ask_timeout=timedelta(milliseconds=50)))
    async with make_cluster(Slow, settings=settings) as cluster:
        with pytest.raises(SendTimeoutError):
            await cluster.entity(Slow, "s").work("a")
        Slow.gate.set()


async def test_cancelling_an_ask_leaves_its_message(make_cluster: MakeCluster) -> None:
    async with make_cluster(Slow) as cluster:
        slow = cluster.entity(Slow, "s")
        first = await slow.work.send("a")
        await until(lambda: Slow.begun == ["a"])
        task = asyncio.create_task(slow.work("b"))
        mailbox = cluster.joined_runner().messaging.mailboxes
        shard = cluster.shard_of(Slow, "s")

        async def is_there() -> bool:
            return await mailbox.depth(shard, "Slow:s") == 2

        await until(is_there)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        Slow.gate.set()
        assert await first.result() == "a"
        await until(lambda: Slow.begun == ["a", "b"])
