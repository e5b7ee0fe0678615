"""The whole way of a message on every kind of server and database: what one does otherwise shows here."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from redis_cluster_kit import Cluster, HandlerFailedError, MailboxFullError
from redis_cluster_kit.testing import until

from .account import Account, Insufficient
from .conftest import owns_all, quick
from .test_staged_sends import Listener, Speaker, all_of


async def test_the_whole_way(redis_server: Any, database_url: str, namespace: str) -> None:
    def make() -> Cluster:
        return Cluster(
            redis_server.url,
            database_url,
            namespace=namespace,
            entities=[Account, Speaker, Listener],
            settings=quick(),
        )

    async with make() as first, make() as second:
        await until(lambda: owns_all(first, second, shards=8))
        await ask_and_tell(first, second)
        await send_in_turns(first)
        await fail_and_replay(second)
        await forget(first)


async def ask_and_tell(first: Cluster, second: Cluster) -> None:
    names = [f"user {number}" for number in range(12)]
    await asyncio.gather(*(first.entity(Account, name).deposit(2) for name in names))
    for name in names:
        account = second.entity(Account, name)
        with pytest.raises(Insufficient):
            await account.withdraw(3)
        keyed = account.deposit.options(idempotency_key="k")
        assert await keyed(1) == await keyed(1) == 3
    assert await first.broadcast(Account.deposit, 1) == 12
    later = second.entity(Account, "user 1").deposit.options(delay=timedelta(milliseconds=100))
    assert await (await later.send(1)).result() == 5
    never = await account.deposit.options(delay=timedelta(hours=1)).send(1)
    assert await first.cancel(never.message_id)


async def send_in_turns(cluster: Cluster) -> None:
    await cluster.entity(Speaker, "s").say(["a", "b"], [str(number) for number in range(30)])
    for id in ("a", "b"):
        heard = await until(partial(all_of, cluster.entity(Listener, id), 30))
        assert heard == [str(number) for number in range(30)]


async def fail_and_replay(cluster: Cluster) -> None:
    account = cluster.entity(Account, "fails")
    with pytest.raises(HandlerFailedError):
        await account.fail("no luck")
    (letter,) = await cluster.dead_letters.list()
    assert await cluster.dead_letters.replay(letter.message_id)
    with pytest.raises(HandlerFailedError):
        await cluster.receipt(letter.message_id, int).result()
    await until(cluster.dead_letters.list)
    assert await cluster.dead_letters.drop(letter.message_id)
    assert await account.balance() == 0


async def forget(cluster: Cluster) -> None:
    account = cluster.entity(Account, "user 2")
    await account.deposit.options(delay=timedelta(hours=1)).send(1)
    await cluster.delete(Account, "user 2")
    assert await account.balance() == 0


async def test_a_bounded_mailbox(redis_server: Any, sqlite_url: str, namespace: str) -> None:
    client = Cluster(redis_server.url, sqlite_url, namespace=namespace, settings=quick(), hosting=False)
    async with client:
        account = client.entity(Account, "alice")
        results = await asyncio.gather(*(account.deposit.send(1) for _ in range(150)), return_exceptions=True)
        assert sum(isinstance(result, MailboxFullError) for result in results) == 50
    host = Cluster(redis_server.url, sqlite_url, namespace=namespace, settings=quick(), entities=[Account])
    async with host:
        receipts = [result for result in results if not isinstance(result, BaseException)]
        balances = [host.receipt(receipt.message_id, int).result() for receipt in receipts]
        assert sorted(await asyncio.gather(*balances)) == list(range(1, 101))
