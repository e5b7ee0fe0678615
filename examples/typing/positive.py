"""What type checkers know about entities: every line here passes mypy and pyright in strict mode."""

from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar, assert_type

import msgspec

from redis_cluster_kit.cluster import Cluster
from redis_cluster_kit.entity import (
    BoundRpc,
    ClusterContext,
    Entity,
    Receipt,
    Registry,
    Retry,
    RpcCall,
    RpcMethod,
    SingletonContext,
    SingletonMetadata,
    SingletonState,
    current,
    rpc,
    within_cluster,
)
from redis_cluster_kit.errors import EntityError
from redis_cluster_kit.identity import EntityAddress, ShardId

S = TypeVar("S")
registry = Registry()


class Ledger(msgspec.Struct):
    balance: int = 0


class Insufficient(EntityError, code="insufficient"):  # noqa: N818 - an answer, named as users say it
    missing: int
    currency: str = "EUR"


@registry.entity
class Account(
    Entity[Ledger],
    name="account",
    mailbox_capacity=100,
    max_idle=timedelta(minutes=10),
    concurrency=1,
    shard_group="default",
    state_version=2,
    retry=Retry(base=timedelta(milliseconds=200), factor=2, max_attempts=5),
):
    async def on_start(self) -> None:
        assert_type(self.state, Ledger)

    def initial(self) -> Ledger:
        return Ledger(balance=1)

    @classmethod
    def upgrade(cls, raw: dict[str, object], version: int) -> Ledger:
        return Ledger(balance=len(raw) * version)

    @rpc
    async def deposit(self, amount: int, note: str = "") -> int:
        self.state.balance += amount if note != "void" else 0
        return self.state.balance

    @rpc(raises=[Insufficient])
    async def withdraw(self, amount: int) -> int:
        if amount > self.state.balance:
            raise Insufficient(missing=amount - self.state.balance)
        assert_type(await self.deposit(-amount), int)
        assert_type(await self.deposit.send(0), Receipt[int])
        return self.state.balance

    @rpc(readonly=True)
    async def history(self, *, since: datetime) -> list[str]:
        return [f"{self.id} {since}"]


class Premium(Account, name="premium"):
    @rpc
    async def deposit(self, amount: int, note: str = "") -> int:
        self.state.balance += 2 * amount if note != "void" else 0
        return self.state.balance


class Counted(Entity[S], Generic[S]):
    @rpc
    async def touch(self) -> None: ...


class CountedLedger(Counted[Ledger]):
    pass


class Stateless(Entity[None]):
    @rpc
    async def echo(self, text: str) -> str:
        assert_type(self.state, None)
        return text


async def use(alice: Account, premium: Premium, counted: CountedLedger, stateless: Stateless) -> None:
    assert_type(await alice.deposit(10), int)
    assert_type(await alice.deposit(amount=10, note="rent"), int)
    assert_type(await alice.history(since=datetime.now(UTC)), list[str])
    assert_type(await premium.withdraw(1), int)
    assert_type(await stateless.echo("hello"), str)
    assert_type(counted.state, Ledger)
    await counted.touch()

    receipt = await alice.deposit.send(10)
    assert_type(receipt.message_id, str)
    assert_type(await receipt.result(timeout=5), int)
    assert_type(await receipt.result(timeout=None), int)
    assert_type(await alice.deposit.options(delay=timedelta(hours=1)).send(10), Receipt[int])
    chosen = alice.deposit.options(deliver_at=datetime.now(UTC), idempotency_key="order-17", timeout=2.0)
    assert_type(await chosen(10), int)
    assert_type(alice.id, str)
    assert_type(alice.address, EntityAddress)
    assert_type(alice.resource(Ledger), Ledger)


def take_a_call(call: RpcCall[[str], str], method: RpcMethod[[str], str]) -> str:
    return f"{call!r} {method.name}"


def pass_on(stateless: Stateless) -> None:
    bound: BoundRpc[[str], str] = stateless.echo
    take_a_call(bound, Stateless.echo)
    take_a_call(stateless.echo.options(timeout=timedelta(seconds=2)), Stateless.echo)


def scope() -> None:
    with within_cluster(entity_id="alice", shard_id=ShardId("default", 42), fence=7) as context:
        assert_type(context, ClusterContext)
        assert_type(current().entity_id, str | None)
        assert_type(current().fence, int)


assert_type(registry.entity(Stateless), type[Stateless])
assert_type(Insufficient(missing=3).missing, int)


async def warm_up(ctx: SingletonContext[Ledger]) -> None:
    assert_type(ctx.state, Ledger)


async def cool_down() -> None: ...


@registry.singleton(
    "coordinator",
    state=Ledger,
    initial=Ledger(balance=1),
    shard_group="default",
    expected_interval=timedelta(seconds=30),
    state_ttl=timedelta(days=1),
    on_become_leader=warm_up,
    on_lose_leadership=cool_down,
)
async def coordinator(ctx: SingletonContext[Ledger]) -> None:
    async for now in ctx.every(timedelta(seconds=5)):
        assert_type(now, datetime)
        await ctx.update(balance=ctx.state.balance + 1)
        await ctx.patch(Ledger, balance=2)
        await ctx.set(Ledger(balance=3))
        assert_type(ctx.metadata, SingletonMetadata)
        assert_type(ctx.fence, int)
        assert_type(ctx.resource(Ledger), Ledger)
        await ctx.heartbeat()


@registry.singleton("plain")
async def plain(ctx: SingletonContext[None]) -> None:
    assert_type(ctx.state, None)


async def look(cluster: Cluster) -> None:
    cluster.singleton("another", state=Ledger)(coordinator)
    await coordinator_again(cluster)
    found = await cluster.singleton_state("coordinator", Ledger, fresh=True)
    assert_type(found, SingletonState[Ledger] | None)
    if found is not None:
        assert_type(found.state, Ledger)
        assert_type(found.age, timedelta)
    assert_type(await cluster.singleton_metadata("coordinator"), SingletonMetadata | None)


async def coordinator_again(cluster: Cluster) -> None:
    @cluster.singleton("decorated", state=Ledger)
    async def decorated(ctx: SingletonContext[Ledger]) -> None:
        await ctx.update(balance=0)
