"""Mistakes that type checkers see. Each marked line is reported: `# error: <mypy's code>, <pyright's rule>`."""

from datetime import timedelta

import msgspec

from redis_cluster_kit.entity import Entity, Registry, Retry, current, rpc, within_cluster
from redis_cluster_kit.errors import EntityError


class Ledger(msgspec.Struct):
    balance: int = 0


class Insufficient(EntityError, code="insufficient"):
    missing: int


class Account(Entity[Ledger], name="account"):
    @rpc
    async def deposit(self, amount: int, note: str = "") -> int:
        self.state.balance += amount
        self.state.balanse += amount  # error: attr-defined, reportAttributeAccessIssue
        self.state = {"balance": 1}  # error: assignment, reportAttributeAccessIssue
        total: str = await self.deposit(1)  # error: assignment, reportAssignmentType
        await self.deposit.send("1")  # error: arg-type, reportArgumentType
        return self.state.balance + len(total)

    @rpc(raises=[Insufficient])
    async def withdraw(self, amount: int) -> int:
        raise Insufficient(lacking=amount)  # error: call-arg, reportCallIssue

    @rpc(raises=[ValueError])  # error: list-item, reportArgumentType
    async def close(self) -> None: ...

    @rpc(readonly="yes")  # error: call-overload, reportArgumentType
    async def peek(self) -> None: ...


class Sync(Entity[None]):
    @rpc  # error: arg-type, reportArgumentType
    def run(self) -> int:
        return 1


class Overriding(Account):
    @rpc
    async def withdraw(self, amount: str) -> int:  # error: override, reportIncompatibleVariableOverride
        return len(amount)


class Idle(Entity[None], max_idle=60): ...  # error: arg-type, reportArgumentType


class Tried(Entity[None], retry=Retry(max_attempts="3")): ...  # error: arg-type, reportArgumentType


class Coloured(Entity[None], colour="red"): ...  # error: call-arg, reportCallIssue


async def use(alice: Account) -> None:
    await alice.deposit()  # error: call-arg, reportCallIssue
    await alice.deposit("10")  # error: arg-type, reportArgumentType
    await alice.deposit(10, memo="rent")  # error: call-arg, reportCallIssue
    text: str = await alice.deposit(10)  # error: assignment, reportAssignmentType
    alice.deposit(10)  # error: unused-coroutine, reportUnusedCoroutine
    await alice.deposit.send()  # error: call-arg, reportCallIssue
    receipt = await alice.deposit.send(10)
    text = await receipt.result()  # error: assignment, reportAssignmentType
    await receipt  # error: misc, reportGeneralTypeIssues
    alice.deposit.options(delay=5)  # error: arg-type, reportArgumentType
    alice.deposit.options(dellay=timedelta(1))  # error: call-arg, reportCallIssue
    await alice.deposit.options(timeout=2.0)("10")  # error: arg-type, reportArgumentType
    await Account.deposit(10)  # error: operator, reportCallIssue
    await alice.depposit(10)  # error: attr-defined, reportAttributeAccessIssue
    alice.id = text  # error: misc, reportAttributeAccessIssue


def scope() -> None:
    with within_cluster(entity="alice"):  # error: call-arg, reportCallIssue
        current().fence = 3  # error: misc, reportAttributeAccessIssue
    Registry().entity(Ledger)  # error: type-var, reportArgumentType
