"""Idempotency keys: one effect, the first reply again, and another call under the same key is refused."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from redis_cluster_kit import DedupeSettings, Entity, HandlerFailedError, MalformedMessageError, rpc
from redis_cluster_kit.testing import until

from .account import QUICKLY, Account, Insufficient
from .conftest import MakeCluster, owns_all, quick


class Gated(Entity[None], retry=QUICKLY):
    gate: asyncio.Event
    begun: list[str]

    @rpc
    async def hear(self, name: str) -> int:
        Gated.begun.append(name)
        await Gated.gate.wait()
        return len(Gated.begun)

    @rpc
    async def fail(self, name: str) -> None:
        Gated.begun.append(name)
        raise ValueError(name)


@pytest.fixture(autouse=True)
def closed_gate() -> None:
    Gated.gate, Gated.begun = asyncio.Event(), []


async def test_one_effect_and_the_first_reply_again(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as cluster, make_cluster(hosting=False) as other:
        alice = cluster.entity(Account, "alice")
        keyed = alice.deposit.options(idempotency_key="order-17")
        assert await keyed(10) == 10
        assert await alice.deposit(1) == 11
        assert await keyed(10) == 10
        again = other.entity(Account, "alice").deposit.options(idempotency_key="order-17")
        assert await again(10) == 10
        receipt = await again.send(10)
        assert await receipt.result() == 10
        assert await alice.balance() == 11


async def test_a_declared_error_is_a_reply_too(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as cluster:
        alice = cluster.entity(Account, "alice")
        keyed = alice.withdraw.options(idempotency_key="k")
        with pytest.raises(Insufficient):
            await keyed(10)
        await alice.deposit(100)
        with pytest.raises(Insufficient) as caught:
            await keyed(10)
        assert caught.value.missing == 10


async def test_a_dead_letter_is_a_reply_too(make_cluster: MakeCluster) -> None:
    async with make_cluster(Gated) as cluster:
        keyed = cluster.entity(Gated, "g").fail.options(idempotency_key="k")
        for _ in range(2):
            with pytest.raises(HandlerFailedError, match="bad"):
                await keyed("bad")
        assert Gated.begun == ["bad"] * 3  # the attempts of the first


async def test_another_call_under_the_key_is_refused(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as cluster:
        alice = cluster.entity(Account, "alice")
        key = "order-17"
        assert await alice.deposit.options(idempotency_key=key)(10) == 10
        for call in (
            alice.deposit.options(idempotency_key=key)(11),
            alice.withdraw.options(idempotency_key=key)(10),
            alice.deposit.options(idempotency_key=key).send(11),
            alice.deposit.options(idempotency_key=key, delay=timedelta(hours=1)).send(11),
        ):
            with pytest.raises(MalformedMessageError, match="order-17"):
                await call
        assert await alice.balance() == 10


async def test_a_key_is_the_entity_s_own(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as cluster:
        for name in ("alice", "bob"):
            assert await cluster.entity(Account, name).deposit.options(idempotency_key="k")(1) == 1


async def test_while_the_first_one_is_handled(make_cluster: MakeCluster) -> None:
    async with make_cluster(Gated) as cluster:
        gated = cluster.entity(Gated, "g")
        keyed = gated.hear.options(idempotency_key="k")
        asks = [asyncio.create_task(keyed("a")) for _ in range(5)]
        await until(lambda: Gated.begun == ["a"])
        with pytest.raises(MalformedMessageError):
            await keyed("b")
        receipt = await keyed.send("a")
        Gated.gate.set()
        assert await asyncio.gather(*asks) == [1] * 5
        assert await receipt.result() == 1
        assert Gated.begun == ["a"]


async def test_while_the_first_one_waits(make_cluster: MakeCluster) -> None:
    async with make_cluster(Gated) as cluster:
        gated = cluster.entity(Gated, "g")
        await gated.hear.send("blocks")
        await until(lambda: Gated.begun == ["blocks"])
        keyed = gated.hear.options(idempotency_key="k")
        first, second = await keyed.send("a"), await keyed.send("a")
        assert first.message_id == second.message_id
        with pytest.raises(MalformedMessageError):
            await keyed.send("b")
        Gated.gate.set()
        assert await second.result() == 2
        assert Gated.begun == ["blocks", "a"]


async def test_while_the_first_one_is_scheduled(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as cluster:
        alice = cluster.entity(Account, "alice")
        later = alice.deposit.options(idempotency_key="k", delay=timedelta(hours=1))
        first, second = await later.send(1), await later.send(1)
        assert first.message_id == second.message_id
        at_once = await alice.deposit.options(idempotency_key="k").send(1)
        assert at_once.message_id == first.message_id
        assert await alice.balance() == 0
        assert await cluster.cancel(first.message_id)
        assert await alice.deposit.options(idempotency_key="k")(1) == 1


async def test_after_the_window_the_key_is_new(make_cluster: MakeCluster) -> None:
    settings = quick(dedupe=DedupeSettings(idempotency=timedelta(seconds=1)))
    async with make_cluster(Account, settings=settings) as cluster:
        alice = cluster.entity(Account, "alice")
        keyed = alice.deposit.options(idempotency_key="k")
        assert await keyed(1) == 1

        async def is_new() -> bool:
            return await keyed(1) == 2

        await until(is_new, every=0.1)


async def test_a_key_holds_over_a_hand_off(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as first:
        keyed = first.entity(Account, "alice").deposit.options(idempotency_key="k")
        assert await keyed(1) == 1
    async with make_cluster(Account) as second:
        await until(lambda: owns_all(second))
        alice = second.entity(Account, "alice")
        assert await alice.deposit.options(idempotency_key="k")(1) == 1
        assert await alice.balance() == 1
