"""A bank: accounts are entities, the auditor is a singleton, and a transfer is one atomic turn.

`python examples/bank/bank.py` starts a server of its own, lets customers pay one another, and checks the
books. With BANK_REDIS and BANK_DATABASE set, `rck run --processes 3 examples.bank.bank:make_cluster` serves
the same bank on three pods, and this program is a fourth.
"""

from __future__ import annotations

import asyncio
import os
import random
from datetime import timedelta

import msgspec

from redis_cluster_kit import Cluster, Entity, EntityError, Registry, SingletonContext, rpc

NAMES = ("alice", "bob", "carol", "dave")
OPENING = 100


class Ledger(msgspec.Struct):
    balance: int = 0


class Insufficient(EntityError, code="insufficient"):  # noqa: N818 - an answer, named as users say it
    missing: int


class Account(Entity[Ledger], name="account"):
    @rpc
    async def deposit(self, amount: int) -> int:
        self.state.balance += amount
        return self.state.balance

    @rpc(raises=[Insufficient])
    async def transfer(self, to: str, amount: int) -> int:
        """Pay: the new balance and the message to the other account are committed together, or not at all."""
        if amount > self.state.balance:
            raise Insufficient(missing=amount - self.state.balance)
        self.state.balance -= amount
        await self.cluster.entity(Account, to).deposit.send(amount)
        return self.state.balance

    @rpc(readonly=True)
    async def balance(self) -> int:
        return self.state.balance


class Audit(msgspec.Struct):
    rounds: int = 0
    total: int = 0


registry = Registry()


@registry.singleton("auditor", state=Audit, expected_interval=timedelta(seconds=30))
async def auditor(ctx: SingletonContext[Audit]) -> None:
    """Add all accounts up, again and again, wherever it runs. A takeover goes on from the state it saved."""
    async for _ in ctx.every(timedelta(milliseconds=200)):
        await ctx.set(Audit(rounds=ctx.state.rounds + 1, total=await total_of(ctx.cluster)))


async def total_of(cluster: Cluster) -> int:
    """Return what all accounts hold; what is on its way between two of them is in neither."""
    return sum(await asyncio.gather(*(cluster.entity(Account, name).balance() for name in NAMES)))


def make_cluster() -> Cluster:
    """Return a cluster on the stores of the environment, or on some of its own."""
    if "BANK_REDIS" not in os.environ:
        return Cluster.embedded(entities=[Account], include=[registry])
    return Cluster(
        os.environ["BANK_REDIS"],
        os.environ.get("BANK_DATABASE"),
        namespace="bank",
        entities=[Account],
        include=[registry],
    )


async def pay(cluster: Cluster) -> bool:
    """Ask for one random transfer, twice, as a customer does who heard nothing; return whether it is paid."""
    source, target = random.sample(NAMES, 2)
    key = f"transfer-{cluster.generate_id()}"
    transfer = cluster.entity(Account, source).transfer.options(idempotency_key=key)
    amount = random.randint(1, 30)
    try:
        first, again = await asyncio.gather(transfer(target, amount), transfer(target, amount))
    except Insufficient:
        return False
    assert first == again, "the same key, and another answer"
    return True


async def main() -> None:
    async with make_cluster() as cluster:
        for name in NAMES:  # under a key an opening deposit counts once, however often this runs
            await cluster.entity(Account, name).deposit.options(idempotency_key="opening")(OPENING)
        paid = await asyncio.gather(*(pay(cluster) for _ in range(100)))
        print(f"100 transfers were asked for twice each: {sum(paid)} paid once, {100 - sum(paid)} declined")

        while (total := await total_of(cluster)) != OPENING * len(NAMES):
            print(f"{OPENING * len(NAMES) - total} is on its way")
            await asyncio.sleep(0.1)
        print(f"{len(NAMES)} accounts hold {total}, as in the beginning")

        while True:
            audit = await cluster.singleton_state("auditor", Audit)
            if audit is not None and audit.state.total == total:
                break
            await asyncio.sleep(0.1)
        print(f"the auditor says {total}")


if __name__ == "__main__":
    asyncio.run(main())
