"""The entity most tests use, as users would write it."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from redis_cluster_kit import ClusterContext, Entity, EntityError, Retry, current, rpc

QUICKLY = Retry(base=timedelta(milliseconds=1), factor=1, max_attempts=3)


class Ledger(msgspec.Struct):
    balance: int = 0
    entries: list[str] = []


class Insufficient(EntityError, code="insufficient"):
    missing: int
    currency: str = "EUR"


class Undeclared(EntityError, code="undeclared"):
    pass


class Account(Entity[Ledger], name="account", retry=QUICKLY):
    @rpc
    async def deposit(self, amount: int, note: str = "") -> int:
        self.state.balance += amount
        if note:
            self.state.entries.append(note)
        return self.state.balance

    @rpc(raises=[Insufficient])
    async def withdraw(self, amount: int) -> int:
        if amount > self.state.balance:
            missing = amount - self.state.balance
            self.state.balance = -1
            raise Insufficient(missing=missing)
        self.state.balance -= amount
        return self.state.balance

    @rpc(readonly=True)
    async def balance(self) -> int:
        return self.state.balance

    @rpc(readonly=True)
    async def entries(self) -> list[str]:
        return self.state.entries

    @rpc
    async def twice(self, amount: int) -> int:
        await self.deposit(amount)
        return await self.deposit(amount=amount)

    @rpc
    async def replace(self, balance: int) -> None:
        self.state = Ledger(balance=balance)

    @rpc(readonly=True)
    async def spoil(self) -> int:
        self.state.balance = 1_000_000
        return self.state.balance

    @rpc
    async def fail(self, text: str) -> None:
        self.state.balance += 1_000
        raise ValueError(text)

    @rpc
    async def raise_undeclared(self) -> None:
        raise Undeclared

    @rpc
    async def where(self) -> tuple[str, str, str, int]:
        """Id, type, shard and what `current()` says of the fence."""
        return self.id, self.address.type, str(self.address.shard), current().fence

    @rpc
    async def context(self) -> dict[str, str | int | bool | None]:
        context: ClusterContext = current()
        return {
            "entity_id": context.entity_id,
            "entity_type": context.entity_type,
            "shard_id": str(context.shard_id),
            "runner_id": context.runner_id,
            "is_leader": context.is_leader,
            "message_id": context.message_id,
            "attempt": context.attempt,
        }
