"""The order workflow: its program, its reminders over days, the orders that nobody approves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from examples.orders.orders import Order, OrderState, Shop
from redis_cluster_kit import Cluster
from redis_cluster_kit.testing import Pods, local_cluster, until

ROOT = Path(__file__).parents[2]
DAY = timedelta(days=1)
OUTPUT = """\
warehouse: 2 × teapot are kept back for order 17
bank: 58 are charged for order 17
mail: please approve order 17
everything is shut down, and the order waits in the stores
approved: True
carrier: order 17 is on its way
shipped, parcel of order 17
approved once more: False
"""


class NotedShop(Shop):
    """Keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.token = ""

    async def reserve(self, order: str, item: str, count: int) -> int:
        self.asked.append(f"reserve {count} {item}")
        return 10 * count

    async def charge(self, order: str, amount: int) -> str:
        self.asked.append(f"charge {amount}")
        return "payment"

    async def ask(self, order: str, token: str) -> None:
        self.asked.append("ask")
        self.token = token

    async def remind(self, order: str, token: str) -> None:
        assert token == self.token
        self.asked.append("remind")

    async def ship(self, order: str) -> str:
        self.asked.append("ship")
        return "parcel"

    async def give_back(self, order: str, payment: str) -> None:
        self.asked.append(f"give back {payment}")


@pytest.fixture
def shop() -> NotedShop:
    return NotedShop()


@pytest.fixture
async def pods(shop: NotedShop) -> AsyncIterator[Pods]:
    @asynccontextmanager
    async def lifespan(cluster: Cluster) -> AsyncGenerator[None]:
        cluster.provide(Shop, shop)
        yield

    async with local_cluster(pods=2, entities=[Order], lifespan=lifespan) as running:
        yield running


async def _waits(pods: Pods, shop: NotedShop, reminders: int) -> None:
    """Wait until it has left memory, so many times reminded of."""

    def so_many() -> bool:
        in_memory = [host for host in pods.hosts() if host.residents]
        return shop.asked.count("remind") == reminders and bool(shop.token) and not in_memory

    await until(so_many, what=f"{reminders} reminders, and nothing in memory")


async def test_an_order_is_approved_after_a_reminder_and_ships(pods: Pods, shop: NotedShop) -> None:
    order = pods[0].entity(Order, "17")
    receipt = await order.place.send("teapot", 2)
    await _waits(pods, shop, 0)
    await pods.clock.advance(DAY)
    await _waits(pods, shop, 1)
    assert await pods[1].complete(shop.token, True)
    assert await receipt.result() == OrderState("shipped", "parcel")
    assert shop.asked == ["reserve 2 teapot", "charge 20", "ask", "remind", "ship"]
    assert await order.place("teapot", 2) == OrderState("shipped", "parcel")
    assert shop.asked[-1] == "ship", "placed twice, shipped once"


async def test_an_order_that_nobody_approves_is_declined_in_the_end(pods: Pods, shop: NotedShop) -> None:
    receipt = await pods[0].entity(Order, "17").place.send("teapot", 2)
    for reminders in range(4):
        await _waits(pods, shop, reminders)
        await pods.clock.advance(DAY)
    assert await receipt.result() == OrderState("declined")
    asked = ["reserve 2 teapot", "charge 20", "ask", "remind", "remind", "remind", "give back payment"]
    assert shop.asked == asked
    assert not await pods[1].complete(shop.token, True)


async def test_an_order_that_is_declined_gives_back_what_it_took(pods: Pods, shop: NotedShop) -> None:
    receipt = await pods[1].entity(Order, "17").place.send("teapot", 2)
    await _waits(pods, shop, 0)
    await pods.stop(0)  # nothing of the order is lost with a pod that leaves
    assert await pods[0].complete(shop.token, False)
    assert await receipt.result() == OrderState("declined")
    assert shop.asked == ["reserve 2 teapot", "charge 20", "ask", "give back payment"]


def test_the_program_runs() -> None:
    command = [sys.executable, "-W", "error", "-m", "examples.orders"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == OUTPUT
