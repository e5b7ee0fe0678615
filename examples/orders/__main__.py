"""A pod takes an order and leaves; another one, which comes later, brings it to its end."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from redis_cluster_kit import Cluster

from .orders import Order, OrderState, Shop

tokens: list[str] = []
mail = anyio.Event()


class PaperShop(Shop):
    """Says what a real one would do."""

    async def reserve(self, order: str, item: str, count: int) -> int:
        print(f"warehouse: {count} × {item} are kept back for {order}")
        return 29 * count

    async def charge(self, order: str, amount: int) -> str:
        print(f"bank: {amount} are charged for {order}")
        return f"payment of {order}"

    async def ask(self, order: str, token: str) -> None:
        print(f"mail: please approve {order}")
        tokens.append(token)
        mail.set()

    async def ship(self, order: str) -> str:
        print(f"carrier: {order} is on its way")
        return f"parcel of {order}"


@asynccontextmanager
async def shop(cluster: Cluster) -> AsyncGenerator[None]:
    cluster.provide(Shop, PaperShop())
    yield


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Cluster.embedded(folder, entities=[Order], lifespan=shop) as cluster:
            order = cluster.entity(Order, "order 17")
            receipt = await order.place.options(idempotency_key="order 17").send("teapot", 2)
            await mail.wait()
        print("everything is shut down, and the order waits in the stores")
        async with Cluster.embedded(folder, entities=[Order], lifespan=shop) as cluster:
            print("approved:", await cluster.complete(tokens[0], True))
            ended = await cluster.receipt(receipt.message_id, OrderState).result()
            print(f"{ended.status}, {ended.parcel}")
            print("approved once more:", await cluster.complete(tokens[0], False))


anyio.run(main)
