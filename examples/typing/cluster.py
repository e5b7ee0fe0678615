"""What type checkers know about a cluster: the calls of the API page as they are written there."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import assert_type

import msgspec

from redis_cluster_kit import (
    Cluster,
    ClusterContext,
    DeadLetter,
    DedupeSettings,
    DrainSettings,
    Entity,
    EntityAddress,
    EntityError,
    HealthReport,
    LeaseSettings,
    MailboxSettings,
    Receipt,
    Registry,
    Retry,
    Settings,
    ShardId,
    Snowflake,
    current,
    replicated,
    rpc,
)


class Ledger(msgspec.Struct):
    balance: int = 0


class Insufficient(EntityError, code="insufficient"):  # noqa: N818 - an answer, named as users say it
    missing: int


class Pool:
    """A resource."""


class Account(
    Entity[Ledger],
    name="account",
    mailbox_capacity=100,
    max_idle=timedelta(minutes=10),
    concurrency=1,
    shard_group="default",
    state_version=1,
    retry=Retry(base=timedelta(milliseconds=200), factor=2, max_attempts=5),
):
    async def on_start(self) -> None: ...
    async def on_stop(self) -> None: ...

    @rpc
    async def deposit(self, amount: int) -> int:
        self.state.balance += amount
        return self.state.balance

    @rpc(raises=[Insufficient])
    async def withdraw(self, amount: int) -> int:
        if amount > self.state.balance:
            raise Insufficient(missing=amount - self.state.balance)
        self.state.balance -= amount
        return self.state.balance

    @rpc(readonly=True)
    async def balance(self) -> int:
        return self.state.balance

    @rpc
    async def everything_a_handler_may_do(self, other: str) -> None:
        self.state = Ledger()
        self.keep_alive()
        assert_type(self.resource(Pool), Pool)
        assert_type(self.address, EntityAddress)
        assert_type(current(), ClusterContext)
        assert_type(await self.deposit(5), int)
        assert_type(await self.deposit.send(5), Receipt[int])
        friend = cluster.entity(Account, other)
        assert_type(await friend.deposit(1), int)


billing = Registry()


@asynccontextmanager
async def resources(cluster: Cluster) -> AsyncGenerator[None]:
    cluster.provide(Pool, Pool())
    yield


cluster = Cluster(
    redis="redis://localhost:6379/0",
    database="postgresql+asyncpg://localhost/app",
    namespace="shop",
    entities=[Account],
    include=[billing],
    lifespan=resources,
    settings=Settings(
        lease=LeaseSettings(ttl=timedelta(seconds=5)),
        mailbox=MailboxSettings(capacity=50),
        dedupe=DedupeSettings(generated=timedelta(minutes=2)),
        drain=DrainSettings(budget=timedelta(seconds=5)),
    ),
)


async def main(when: datetime) -> None:
    async with cluster:
        alice = cluster.entity(Account, "alice")
        assert_type(alice, Account)
        assert_type(await alice.deposit(10), int)
        receipt = await alice.deposit.send(10)
        assert_type(receipt, Receipt[int])
        assert_type(await receipt.result(timeout=5), int)
        assert_type(receipt.message_id, str)
        assert_type(cluster.receipt(receipt.message_id, int), Receipt[int])
        assert_type(await cluster.receipt(receipt.message_id, list[int]).result(), list[int])
        assert_type(await cluster.cancel(receipt.message_id), bool)
        await alice.deposit.options(delay=timedelta(hours=1)).send(10)
        options = alice.deposit.options(
            deliver_at=when, idempotency_key="order-17", timeout=2.0, durability=replicated(1)
        )
        assert_type(await options(10), int)
        assert_type(await alice.deposit.options(timeout=None)(10), int)
        try:
            await alice.withdraw(1_000)
        except Insufficient as error:
            assert_type(error.missing, int)
        await cluster.run_forever()


async def route(address: EntityAddress) -> None:
    alice = cluster.entity(Account, "alice")
    assert_type(await cluster.send(alice.deposit, 10), Receipt[int])
    assert_type(await cluster.send(alice.deposit, amount=10), Receipt[int])
    assert_type(await cluster.send(alice.deposit.options(idempotency_key="k"), 10), Receipt[int])
    assert_type(await cluster.send(address, Account.deposit, 10), Receipt[int])
    assert_type(await cluster.send(address, Account.deposit, amount=10), Receipt[int])
    assert_type(await cluster.broadcast(Account.deposit, 1), int)
    assert_type(await cluster.broadcast(Account.deposit, amount=1), int)


async def operate() -> None:
    assert_type(cluster.is_local(Account, "alice"), bool)
    assert_type(cluster.shard_of(Account, "alice"), ShardId)
    assert_type(await cluster.owner_of(Account, "alice"), str | None)
    assert_type(cluster.runner_id, str)
    assert_type(cluster.generate_id(), Snowflake)
    assert_type(await cluster.reset(Account, "alice"), None)
    assert_type(await cluster.delete(Account, "alice"), None)
    assert_type(await cluster.dead_letters.list(type="account"), Sequence[DeadLetter])
    for letter in await cluster.dead_letters.list():
        assert_type(letter.buried_at, datetime)
        assert_type(await cluster.dead_letters.replay(letter.message_id), bool)
        assert_type(await cluster.dead_letters.drop(letter.message_id), bool)
    await cluster.poll()
    cluster.begin_drain()
    assert_type(cluster.is_shutting_down, bool)
    assert_type(await cluster.health(), HealthReport)
    assert_type(cluster.resource(Pool), Pool)
    async for event in cluster.events():
        print(event, datetime.now(UTC))


async def embedded() -> None:
    async with Cluster.embedded(entities=[Account]) as own, Cluster("redis://r", hosting=False) as client:
        assert_type(own, Cluster)
        assert_type(client, Cluster)
