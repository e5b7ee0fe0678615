"""One workflow, written as the function it is: its steps run once, its waits last for days and hold no pod.

Killed at any line, another pod runs `place` again from its top: steps that are recorded answer with what they
returned, waits end when they would have ended. Until an order has ended its mailbox waits, too.
"""

from __future__ import annotations

from datetime import timedelta

import anyio
import msgspec

from redis_cluster_kit import Entity, rpc

PATIENCE = timedelta(days=1)
"""How long an approval is waited for before somebody is reminded, and after the last reminder."""
REMINDERS = 3


class Shop:
    """What orders do outside: a warehouse, a bank, a mail server, a carrier.

    A pod may die between the end of a step and its record. Then the step is run again: so each call names the
    order, and is something that has an effect once, however often it is asked for.
    """

    async def reserve(self, order: str, item: str, count: int) -> int:
        """Keep goods back; return what they cost."""
        raise NotImplementedError

    async def charge(self, order: str, amount: int) -> str:
        """Take the money; return the number of the payment."""
        raise NotImplementedError

    async def ask(self, order: str, token: str) -> None:
        """Ask somebody to approve; whoever has the token decides."""
        raise NotImplementedError

    async def remind(self, order: str, token: str) -> None:
        """Ask again."""
        raise NotImplementedError

    async def ship(self, order: str) -> str:
        """Send the goods; return the number of the parcel."""
        raise NotImplementedError

    async def give_back(self, order: str, payment: str) -> None:
        """Give back the money and the goods."""
        raise NotImplementedError


class OrderState(msgspec.Struct):
    status: str = "new"
    parcel: str = ""


class Order(Entity[OrderState], name="order"):
    """One order; its number is the entity's id."""

    @rpc
    async def place(self, item: str, count: int) -> OrderState:
        """Bring the order to its end. This may take days: `send` it, and keep the receipt's message id."""
        if self.state.status != "new":
            return self.state  # it was placed before
        shop = self.resource(Shop)
        price = await self.step("reserve", shop.reserve, self.id, item, count)
        payment = await self.step("charge", shop.charge, self.id, price)
        if await self._is_approved(shop):
            parcel = await self.step("ship", shop.ship, self.id)
            self.state = OrderState("shipped", parcel)
        else:
            await self.step("give back", shop.give_back, self.id, payment)
            self.state = OrderState("declined")
        return self.state

    async def _is_approved(self, shop: Shop) -> bool:
        """Wait for the decision, and remind whoever has to make it."""
        decision = self.deferred("approval", bool)
        await self.step("ask", shop.ask, self.id, decision.token)
        is_approved = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._remind, shop, decision.token)
            is_approved = await decision
            tasks.cancel_scope.cancel()
        return is_approved

    async def _remind(self, shop: Shop, token: str) -> None:
        for number in range(1, REMINDERS + 1):
            await self.sleep(PATIENCE, name=f"patience {number}")
            await self.step(f"remind {number}", shop.remind, self.id, token)
        await self.sleep(PATIENCE, name="last patience")
        await self.step("decline", self.cluster.complete, token, False)
