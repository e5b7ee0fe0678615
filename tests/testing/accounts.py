"""The entities that tests of the testing kit use."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from redis_cluster_kit import Entity, EntityError, rpc


class Ledger(msgspec.Struct):
    balance: int = 0


class Insufficient(EntityError, code="insufficient"):
    missing: int


class Bank:
    rate = 3


class Account(Entity[Ledger], name="account", max_idle=timedelta(minutes=10)):
    async def on_start(self) -> None:
        self.starts = getattr(self, "starts", 0) + 1

    @rpc
    async def deposit(self, amount: int) -> int:
        self.state.balance += amount
        return self.state.balance

    @rpc(raises=[Insufficient])
    async def transfer(self, to: str, amount: int) -> int:
        self.state.balance -= amount
        await self.cluster.entity(Account, to).deposit.send(amount)
        if self.state.balance < 0:
            raise Insufficient(missing=-self.state.balance)
        return self.state.balance

    @rpc(readonly=True)
    async def interest(self) -> int:
        return self.state.balance * self.resource(Bank).rate

    @rpc
    async def copy_of(self, other: str) -> int:
        self.state.balance = await self.cluster.entity(Account, other).interest()
        return self.state.balance

    @rpc
    async def remind(self) -> None:
        await self.deposit.options(delay=timedelta(days=1)).send(1)

    @rpc(readonly=True)
    async def started(self) -> int:
        return self.starts
