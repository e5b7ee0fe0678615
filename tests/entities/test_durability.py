"""`replicated(n)`: a send returns when so many replicas have it, and is refused where they have not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from redis_cluster_kit import KitError, UnknownError, replicated
from redis_cluster_kit.embedded import RedisServer, ReplicatedServers

from .account import Account
from .conftest import MakeCluster


@pytest.fixture(scope="module")
def pair() -> Iterator[ReplicatedServers]:
    with ReplicatedServers.start() as servers:
        yield servers


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redis_cluster_kit.delivery.mailbox._REPLICATED_WITHIN", 0.3)
    monkeypatch.setattr("redis_cluster_kit.delivery.mailbox._WAIT_MS", 100)


def has_mailbox(server: RedisServer, namespace: str) -> bool:
    return bool(server.call("KEYS", f"rck:{{{namespace}:*mailbox*"))


async def test_it_returns_when_a_replica_has_it(
    make_cluster: MakeCluster, pair: ReplicatedServers, namespace: str
) -> None:
    async with make_cluster(hosting=False, redis=pair.url) as client:
        alice = client.entity(Account, "alice")
        safe = alice.deposit.options(durability=replicated(1))
        await safe.send(1)
        assert has_mailbox(pair.replica, namespace)
        await alice.deposit.options(durability=replicated(1), delay=timedelta(hours=1)).send(1)
    async with make_cluster(Account, redis=pair.url) as cluster:
        assert await cluster.entity(Account, "alice").deposit.options(durability=replicated(1))(1) == 2


async def test_a_replica_that_lags_is_no_replica(
    make_cluster: MakeCluster, pair: ReplicatedServers, namespace: str
) -> None:
    async with make_cluster(hosting=False, redis=pair.url) as client:
        safe = client.entity(Account, "alice").deposit.options(idempotency_key="k", durability=replicated(1))
        pair.hold_back()
        try:
            with pytest.raises(UnknownError, match="0 of 1 replicas"):
                await safe.send(1)
            assert has_mailbox(pair.primary, namespace)
            assert not has_mailbox(pair.replica, namespace)
            async with make_cluster(hosting=False, redis=pair.url) as other:  # on another connection too
                again = other.entity(Account, "alice").deposit
                with pytest.raises(UnknownError):
                    await again.options(idempotency_key="k", durability=replicated(1)).send(1)
        finally:
            pair.catch_up()
        await safe.send(1)
        assert has_mailbox(pair.replica, namespace)


async def test_more_replicas_than_there_are(make_cluster: MakeCluster, pair: ReplicatedServers) -> None:
    async with make_cluster(hosting=False, redis=pair.url) as client:
        with pytest.raises(UnknownError, match="1 of 2 replicas"):
            await client.entity(Account, "alice").deposit.options(durability=replicated(2)).send(1)


async def test_without_replicas_it_is_refused(make_cluster: MakeCluster) -> None:
    async with make_cluster(hosting=False) as client:
        with pytest.raises(KitError, match="0 of 1 replicas"):
            await client.entity(Account, "alice").deposit.options(durability=replicated(1)).send(1)


@pytest.mark.parametrize("replicas", [0, -1, 101, 1.0, True, "1"])
def test_numbers_that_make_no_sense(replicas: object) -> None:
    with pytest.raises(ValueError, match="whole number"):
        replicated(replicas)  # type: ignore[arg-type]
