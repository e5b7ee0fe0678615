"""Mistakes in calls of a cluster. Each marked line is reported: `# error: <mypy's code>, <pyright's rule>`."""

from datetime import timedelta

import msgspec

from redis_cluster_kit import Cluster, Entity, EntityAddress, replicated, rpc


class Ledger(msgspec.Struct):
    balance: int = 0


class Account(Entity[Ledger]):
    @rpc
    async def deposit(self, amount: int, note: str = "") -> int:
        self.state.balance += amount
        return self.state.balance + len(note)


cluster = Cluster(redis="redis://localhost", entities=[Account])
Cluster(redis="redis://localhost", entities=[Ledger])  # error: list-item, reportArgumentType
Cluster(redis="redis://localhost", entitys=[Account])  # error: call-arg, reportCallIssue
Cluster(redis="redis://localhost", settings={})  # error: arg-type, reportArgumentType


async def call(address: EntityAddress) -> None:
    alice = cluster.entity(Account, "alice")
    await alice.deposit("ten")  # error: arg-type, reportArgumentType
    await alice.deposit()  # error: call-arg, reportCallIssue
    await alice.deposit(1, "note", 3)  # error: call-arg, reportCallIssue
    await alice.deposit(1, nota="x")  # error: call-arg, reportCallIssue
    await alice.depposit(1)  # error: attr-defined, reportAttributeAccessIssue
    await alice.deposit.send("ten")  # error: arg-type, reportArgumentType
    await alice.deposit.options(delay=5).send(1)  # error: arg-type, reportArgumentType
    await alice.deposit.options(timeouts=5).send(1)  # error: call-arg, reportCallIssue
    await alice.deposit.options(delay=timedelta(1)).send("x")  # error: arg-type, reportArgumentType
    alice.deposit.options(durability=1)  # error: arg-type, reportArgumentType
    replicated("one")  # error: arg-type, reportArgumentType
    text: str = await alice.deposit(1)  # error: assignment, reportAssignmentType
    receipt = await alice.deposit.send(1)
    other: str = await receipt.result()  # error: assignment, reportAssignmentType
    await receipt.result(timeout="5")  # error: arg-type, reportArgumentType
    wrong: str = await cluster.receipt(receipt.message_id, int).result()  # error: assignment, reportAssignmentType
    print(text, other, wrong, address)


async def route(address: EntityAddress) -> None:
    alice = cluster.entity(Account, "alice")
    await cluster.send(alice.deposit, "ten")  # error: call-overload, reportCallIssue
    await cluster.send(address, Account.deposit, "ten")  # error: call-overload, reportCallIssue
    await cluster.send(address, alice.deposit, 10)  # error: call-overload, reportCallIssue
    await cluster.broadcast(Account.deposit, "one")  # error: arg-type, reportArgumentType
    await cluster.broadcast(Account.deposit)  # error: call-arg, reportCallIssue
    await cluster.broadcast(alice.deposit, 1)  # error: arg-type, reportArgumentType
    cluster.entity(Ledger, "alice")  # error: type-var, reportArgumentType
    cluster.entity(Account, 7)  # error: arg-type, reportArgumentType
    cluster.is_local("account", "alice")  # error: arg-type, reportArgumentType
    await cluster.dead_letters.replay(7)  # error: arg-type, reportArgumentType
    await Account.deposit(1)  # error: operator, reportCallIssue
