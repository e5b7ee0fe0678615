"""Entities with durable calls, as users would write them; what their steps did is kept beside them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import msgspec

from redis_cluster_kit import Entity, Retry, current, rpc

QUICKLY = Retry(base=timedelta(milliseconds=1), factor=1, max_attempts=3)


class Charge(msgspec.Struct):
    order: str
    amount: int


class Flow(msgspec.Struct):
    done: list[str] = []


class World:
    """What the steps of a test did outside: nothing takes it back."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.effects: list[Any] = []
        self.fails: list[Exception] = []
        self.tokens: list[str] = []

    def note(self, effect: Any) -> None:
        self.effects.append(effect)
        if self.fails:
            raise self.fails.pop(0)


WORLD = World()


async def charge(order: str, amount: int) -> Charge:
    WORLD.note(("charge", order, amount))
    return Charge(order, amount)


async def charge_in_cents(order: str, amount: int) -> int:
    WORLD.note(("charge", order, amount * 100))
    return amount * 100


async def look_around() -> list[str]:
    """Say where a step runs."""
    here = current()
    return [here.entity_type or "", here.entity_id or "", str(here.attempt), here.runner_id or ""]


def ship(order: str) -> str:
    WORLD.note(("ship", order))
    return f"parcel-{order}"


class Order(Entity[Flow], name="order", retry=QUICKLY, mailbox_capacity=2000):
    @rpc
    async def pay(self, amount: int) -> int:
        self.state.done.append("begun")
        paid = await self.step("charge", charge, self.id, amount)
        assert type(paid) is Charge
        again = await self.step("charge", charge, self.id, amount=amount) if amount < 0 else paid
        parcel = await self.step("ship", ship, self.id)
        self.state.done.append(parcel)
        return again.amount

    @rpc
    async def pay_and_fail(self, failures: int) -> int:
        await self.step("charge", charge, self.id, 1)
        attempt = current().attempt
        if attempt <= failures:
            raise ValueError("not yet")
        return attempt

    @rpc
    async def pay_twice(self, first: int, second: int) -> int:
        await self.step("charge", charge, self.id, first)
        return (await self.step("charge", charge, self.id, second)).amount

    @rpc
    async def changed_result(self) -> int:
        """The step's function returns another type from its second run on: as after a deploy."""
        if current().attempt == 1:
            await self.step("charge", charge, self.id, 1)
            raise ValueError("not yet")
        return await self.step("charge", charge_in_cents, self.id, 1)

    @rpc
    async def look_around(self) -> list[str]:
        return await self.step("look", look_around)

    @rpc
    async def nested(self) -> int:
        async def outer() -> int:
            return await self.step("inner", len, "abc")

        return await self.step("outer", outer)

    @rpc
    async def approve(self, days: float = 30) -> bool:
        await self.step("charge", charge, self.id, 1)
        approval = self.deferred("approval", bool)
        WORLD.tokens.append(approval.token)
        is_approved = await approval
        self.state.done.append(f"approved: {is_approved}, attempt {current().attempt}")
        return is_approved

    @rpc
    async def nap(self, seconds: float) -> int:
        self.state.done.append("never committed twice")
        await self.step("charge", charge, self.id, 1)
        try:
            await self.sleep(timedelta(seconds=seconds))
        except Exception:
            WORLD.note("swallowed")
        await self.step("ship", ship, self.id)
        return current().attempt

    @rpc
    async def nap_days(self, days: int) -> int:
        for _ in range(days):
            await self.sleep(timedelta(days=1))
        return days

    @rpc
    async def urge(self, seconds: float) -> str:
        """Wait for an answer, and urge once while there is none."""
        answer = self.deferred("answer", str)
        WORLD.tokens.append(answer.token)

        async def urge() -> None:
            await self.sleep(timedelta(seconds=seconds))
            await self.step("urge", ship, "urged")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(urge)
            found = await answer
            tasks.cancel_scope.cancel()
        return found

    @rpc
    async def note(self, text: str) -> list[str]:
        self.state.done.append(text)
        return self.state.done

    @rpc(readonly=True)
    async def seen(self) -> list[str]:
        return self.state.done
