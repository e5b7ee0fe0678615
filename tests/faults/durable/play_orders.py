"""A pod with `examples/orders`, as it is: only its patience is shorter."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio

from examples.orders import orders
from redis_cluster_kit import Cluster
from redis_cluster_kit.delivery import Parking
from redis_cluster_kit.runtime.commit import Committer
from redis_cluster_kit.storage import Deferreds, Journal

from .stage import STAGE, around, each_line

PATIENCE = timedelta(seconds=1.1)


class Shop(orders.Shop):
    """Writes down what it is asked for; each end of a step stands between its effect and its record."""

    async def reserve(self, order: str, item: str, count: int) -> int:
        STAGE.effect("reserve")
        return 29 * count

    async def charge(self, order: str, amount: int) -> str:
        STAGE.effect("charge")
        return f"payment of {amount}"

    async def ask(self, order: str, token: str) -> None:
        (STAGE.folder / "token").write_text(token)
        STAGE.effect("ask")

    async def remind(self, order: str, token: str) -> None:
        assert token == (STAGE.folder / "token").read_text()
        STAGE.effect("remind")

    async def give_back(self, order: str, payment: str) -> None:
        assert payment == "payment of 58"
        STAGE.effect("give back")

    async def ship(self, order: str) -> str:
        STAGE.effect("ship")
        return f"parcel of {order}"


@asynccontextmanager
async def _lifespan(cluster: Cluster) -> AsyncGenerator[None]:
    cluster.provide(orders.Shop, Shop())
    yield


async def _approve(cluster: Cluster) -> None:
    """Approve when reminded, in every pod anew: as somebody does who clicks twice."""
    while "ran remind" not in STAGE.log:
        await anyio.sleep(0.05)
    await anyio.sleep(0.3)
    await cluster.complete((STAGE.folder / "token").read_text(), True)
    STAGE.checkpoint("approved")


async def main(given: dict[str, Any]) -> None:
    """Place order 17 and bring it to its end; the same pod after pod."""
    settings = STAGE.begin(given)
    orders.PATIENCE, orders.REMINDERS = PATIENCE, 3 if given["is_approved"] else 1
    around(Journal, "open", "record", "forget")
    around(Deferreds, "resolve", "woken")
    around(Parking, "park", "wake")
    around(Committer, "commit")
    cluster = Cluster(
        given["redis"],
        given["database"],
        namespace=given["namespace"],
        settings=settings,
        entities=[orders.Order],
        lifespan=_lifespan,
    )
    each_line(orders.__file__)
    async with cluster, anyio.create_task_group() as tasks:
        if given["is_approved"]:
            tasks.start_soon(_approve, cluster)
        order = cluster.entity(orders.Order, "17")
        receipt = await order.place.options(idempotency_key="order 17").send("teapot", 2)
        result = await receipt.result(timeout=60)
        await STAGE.forgotten()
        assert await order.place("teapot", 2) == result
        tasks.cancel_scope.cancel()
    told = {"end": [result.status, result.parcel], "passed": STAGE.passed}
    (STAGE.folder / f"{given['pod']}.json").write_text(json.dumps(told))
