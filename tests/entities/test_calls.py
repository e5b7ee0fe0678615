"""Entities as the API page writes them: asking, telling, declared errors, contexts, proxies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redis_cluster_kit import (
    Cluster,
    ClusterContextRequired,
    Entity,
    EntityAddress,
    HandlerFailedError,
    Registry,
    current,
    rpc,
)
from redis_cluster_kit.testing import until

from .account import Account, Insufficient
from .conftest import MakeCluster, host_of, owns_all, residents


class Echo(Entity[None]):
    @rpc
    async def echo(self, text: str) -> str:
        return f"{self.id}: {text}"


async def test_asking_and_telling(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as cluster:
        alice = cluster.entity(Account, "alice")
        assert await alice.deposit(10) == 10
        assert await alice.deposit(amount=5, note="rent") == 15
        receipt = await alice.deposit.send(10)
        assert await receipt.result(timeout=5) == 25
        assert await alice.balance() == 25
        assert await alice.entries() == ["rent"]
        assert await cluster.entity(Account, "bob").balance() == 0


async def test_a_call_on_self_belongs_to_the_turn(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as cluster:
        assert await cluster.entity(Account, "alice").twice(4) == 8


async def test_a_state_may_be_replaced(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as cluster:
        alice = cluster.entity(Account, "alice")
        await alice.deposit(1, "a")
        await alice.replace(7)
        assert (await alice.balance(), await alice.entries()) == (7, [])


async def test_a_readonly_rpc_writes_nothing(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as cluster:
        alice = cluster.entity(Account, "alice")
        await alice.deposit(1)
        assert await alice.spoil() == 1_000_000
        assert await alice.balance() == 1


async def test_a_declared_error_is_an_answer(make_cluster: MakeCluster) -> None:
    """It comes as its own class with its fields, is rolled back, and is not tried again."""
    async with make_cluster(Account) as cluster:
        alice = cluster.entity(Account, "alice")
        await alice.deposit(10)
        with pytest.raises(Insufficient) as asked:
            await alice.withdraw(100)
        assert (asked.value.missing, asked.value.currency) == (90, "EUR")
        receipt = await alice.withdraw.send(11)
        with pytest.raises(Insufficient) as told:
            await receipt.result()
        assert told.value.missing == 1
        assert await alice.withdraw(4) == 6
        assert await cluster.dead_letters.list() == []


@pytest.mark.parametrize("undeclared", [True, False])
async def test_any_other_error_is_a_failure(make_cluster: MakeCluster, *, undeclared: bool) -> None:
    async with make_cluster(Account) as cluster:
        alice = cluster.entity(Account, "alice")
        await alice.deposit(10)
        with pytest.raises(HandlerFailedError) as caught:
            await (alice.raise_undeclared() if undeclared else alice.fail("no luck"))
        assert caught.value.remote_type == ("Undeclared" if undeclared else "ValueError")
        if not undeclared:
            assert caught.value.remote_message == "no luck"
            assert "in fail" in caught.value.remote_traceback
        assert caught.value.entity_id == "alice"
        assert await alice.balance() == 10


async def test_handlers_know_where_they_are(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as cluster:
        alice = cluster.entity(Account, "alice")
        shard = cluster.shard_of(Account, "alice")
        id, type, in_shard, fence = await alice.where()
        assert (id, type, in_shard) == ("alice", "account", str(shard))
        assert fence > 0
        receipt = await alice.context.send()
        assert await receipt.result() == {
            "entity_id": "alice",
            "entity_type": "account",
            "shard_id": str(shard),
            "runner_id": cluster.runner_id,
            "is_leader": False,
            "message_id": receipt.message_id,
            "attempt": 1,
        }
        with pytest.raises(ClusterContextRequired):
            current()


async def test_a_proxy_offers_rpcs_and_little_else(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as cluster:
        alice: Any = cluster.entity(Account, "alice")
        assert alice.id == "alice"
        assert alice.address == EntityAddress("account", "alice", cluster.shard_of(Account, "alice"))
        assert alice.cluster is cluster
        assert alice == cluster.entity(Account, "alice")
        assert hash(alice) == hash(cluster.entity(Account, "alice"))
        assert alice != cluster.entity(Account, "bob")
        assert "alice" in repr(alice)
        for name in ("state", "no_such_rpc", "on_start", "keep_alive", "resource", "__fspath__"):
            with pytest.raises(AttributeError):
                getattr(alice, name)
        with pytest.raises(AttributeError):
            alice.state = 3
        assert residents(cluster) == 0  # nothing was sent


@pytest.mark.parametrize("id", ["a b", "a:b:c", "%2A*[?]", "漢字 é", "x" * 512, "é" * 256, "a/b{c}d"])
async def test_ids_may_be_any_text(make_cluster: MakeCluster, id: str) -> None:
    async with make_cluster(Account) as cluster:
        entity = cluster.entity(Account, id)
        receipt = await entity.deposit.send(3)
        assert await cluster.receipt(receipt.message_id, int).result() == 3
        assert (await entity.where())[0] == id
        await cluster.delete(Account, id)
        assert await entity.balance() == 0


@pytest.mark.parametrize("id", ["", "a\nb", "a\x00", "x" * 513, "\ud800", 7, None, b"alice"])
async def test_ids_that_are_refused(make_cluster: MakeCluster, id: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="entity id"):
        make_cluster(Account).entity(Account, id)


async def test_both_forms_of_send(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account, Echo) as cluster:
        alice = cluster.entity(Account, "alice")
        first = await cluster.send(alice.deposit, 10, note="a")
        second = await cluster.send(alice.address, Account.deposit, 5, note="b")
        assert (await first.result(), await second.result()) == (10, 15)
        assert await alice.entries() == ["a", "b"]
        options = alice.deposit.options(idempotency_key="k")
        assert await (await cluster.send(options, 1)).result() == 16
        with pytest.raises(ValueError, match="account"):
            await cluster.send(alice.address, Echo.echo, "to somebody else")


async def test_bytes_of_every_value_travel(make_cluster: MakeCluster) -> None:
    text = "".join(map(chr, range(256))) + "漢\U0001f600"
    async with make_cluster(Echo) as cluster:
        assert await cluster.entity(Echo, "e").echo(text) == f"e: {text}"


async def test_entities_of_a_registry(make_cluster: MakeCluster) -> None:
    registry = Registry()
    registry.entity(Echo)
    async with make_cluster(Account, include=[registry]) as cluster:
        assert await cluster.entity(Echo, "e").echo("hi") == "e: hi"
        assert await cluster.entity(Account, "alice").deposit(1) == 1


async def test_pods_serve_each_other(make_cluster: MakeCluster) -> None:
    """Each asks entities of both, so half of the messages cross."""
    async with make_cluster(Account) as first, make_cluster(Account) as second:
        await until(lambda: owns_all(first, second))
        names = [f"user-{number}" for number in range(20)]
        for pod in (first, second):
            await asyncio.gather(*(pod.entity(Account, name).deposit(1) for name in names))
        balances = await asyncio.gather(*(first.entity(Account, name).balance() for name in names))
        assert balances == [2] * 20
        assert residents(first) + residents(second) == 20
        assert residents(first)
        assert residents(second)


async def test_a_pod_that_only_sends(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account), make_cluster(hosting=False) as client:
        alice = client.entity(Account, "alice")
        assert await alice.deposit(10) == 10
        assert await (await alice.deposit.send(1)).result() == 11
        with pytest.raises(Insufficient):
            await alice.withdraw(100)
        assert not client.is_local(Account, "alice")


async def test_clusters_in_one_process_do_not_meet(make_cluster: MakeCluster, namespace: str) -> None:
    one = make_cluster(Account)
    other = Cluster(one._stores.redis, one._stores.database, namespace=f"{namespace}-b", entities=[Account])
    async with one, other:
        assert await one.entity(Account, "alice").deposit(1) == 1
        assert await other.entity(Account, "alice").deposit(5) == 5
        assert await one.entity(Account, "alice").balance() == 1


async def test_a_cluster_that_is_not_entered_says_so(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(Account)
    alice = cluster.entity(Account, "alice")
    with pytest.raises(RuntimeError, match="not entered"):
        await alice.deposit(1)
    async with cluster:
        assert await alice.deposit(1) == 1  # a proxy may be made before
    with pytest.raises(RuntimeError, match="not entered"):
        await alice.deposit(1)


async def test_poll_finds_what_no_nudge_told_of(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redis_cluster_kit.runtime.shard_host.POLL_EVERY", 1_000)
    async with make_cluster(Account) as cluster:
        await until(lambda: owns_all(cluster))
        lost: list[object] = []
        cluster.joined_runner().messaging.inbox.handlers[b"m"] = lost.append
        receipt = await cluster.entity(Account, "alice").deposit.send(1)
        await until(lambda: lost, what="the nudge to be lost")
        assert host_of(cluster).counters.commits == 0
        await cluster.poll()
        assert await receipt.result() == 1
