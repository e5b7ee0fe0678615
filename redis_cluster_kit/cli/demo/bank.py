"""The demo's bank: accounts are entities, its auditor is a singleton, its clock a cron. Every pod serves all.

An account writes down each transfer it pays and receives and never asks whether it has seen it before: that
nothing is there twice is the kit's part, and `books` checks it. A small bank of the same shape, to copy, is
`examples/bank`.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec

from redis_cluster_kit.entity import Entity, Registry, SingletonContext, Tick, rpc
from redis_cluster_kit.errors import EntityError
from redis_cluster_kit.testing import emit

ACCOUNTS = tuple(f"account-{number:03}" for number in range(120))
OPENING = 1_000
"""What each account holds in the beginning."""
AUDITOR = "auditor"
CLOCK = "clock"
_AUDIT_EVERY = timedelta(seconds=1)

registry = Registry()


class Book(msgspec.Struct):
    """One account: what it holds, and the number of every transfer it paid and received."""

    balance: int = OPENING
    out: int = 0
    into: int = 0
    paid: list[int] = []
    received: list[int] = []


class Totals(msgspec.Struct):
    """The sums of a book."""

    balance: int
    out: int
    into: int

    @property
    def adds_up(self) -> bool:
        """Whether it holds what came in and did not go out."""
        return self.balance == OPENING - self.out + self.into


class Declined(EntityError, code="declined"):  # noqa: N818 - an answer, named as users say it
    """The account holds too little."""

    missing: int


@registry.entity
class Account(Entity[Book], name="account"):
    """One account."""

    @rpc(raises=[Declined])
    async def transfer(self, number: int, to: str, amount: int) -> int:
        """Pay: the withdrawal and the message to the other account are committed together, or not at all."""
        book = self.state
        if amount > book.balance:
            raise Declined(missing=amount - book.balance)
        book.balance -= amount
        book.out += amount
        book.paid.append(number)
        await self.cluster.entity(Account, to).deposit.send(number, amount)
        return book.balance

    @rpc
    async def deposit(self, number: int, amount: int) -> None:
        """Receive."""
        book = self.state
        book.balance += amount
        book.into += amount
        book.received.append(number)

    @rpc(readonly=True)
    async def totals(self) -> Totals:
        """Return the sums."""
        return Totals(self.state.balance, self.state.out, self.state.into)

    @rpc(readonly=True)
    async def book(self) -> Book:
        """Return all of it."""
        return self.state


class Audit(msgspec.Struct):
    """What the auditor found last. It is saved with every round, and the next leader goes on from it."""

    rounds: int = 0
    wrong: int = 0
    """Rounds in which a book did not add up, or more had arrived than was ever paid."""
    underway: int = 0
    """Money that was paid and had not arrived yet."""
    fence: int = 0
    """Whose round it was: the fence its leader held."""


@registry.singleton(AUDITOR, state=Audit)
async def auditor(ctx: SingletonContext[Audit]) -> None:
    """Audit all accounts every second, while they are at work."""
    async for _ in ctx.every(_AUDIT_EVERY):
        # What has arrived by now was paid before: the second reading has to show it.
        arrived = sum(one.into for one in await _read_totals(ctx))
        totals = await _read_totals(ctx)
        underway = sum(one.out for one in totals) - arrived
        is_wrong = underway < 0 or not all(one.adds_up for one in totals)
        seen = ctx.state
        await ctx.set(Audit(seen.rounds + 1, seen.wrong + is_wrong, underway, ctx.fence))


async def _read_totals(ctx: SingletonContext[Audit]) -> list[Totals]:
    accounts: list[Account] = [ctx.cluster.entity(Account, name) for name in ACCOUNTS]
    return await asyncio.gather(*(account.totals() for account in accounts))


@registry.cron("* * * * * *", name=CLOCK, calculate_next_run_from_previous=True)
async def clock(tick: Tick) -> None:
    """Strike every second. It remembers nothing: whoever watches the pods counts the strokes."""
    emit("struck", at=int(tick.scheduled.timestamp()), attempt=tick.attempt)
