"""An entity that asks somebody who waits for it would wait for ever: it is told at once."""

from __future__ import annotations

import time

import pytest

from redis_cluster_kit import CallCycleError, Entity, HandlerFailedError, rpc
from redis_cluster_kit.testing import until

from .account import QUICKLY
from .conftest import MakeCluster, owns_all


class Chain(Entity[None], retry=QUICKLY):
    caught: list[tuple[str, ...]]
    told: list[str]

    @rpc
    async def ask(self, path: list[str]) -> str:
        """Ask the next of the path, which asks the next, …"""
        if not path:
            return self.id
        proxy = self.cluster.entity(Chain, path[0])
        try:
            return f"{self.id} {await proxy.ask(path[1:])}"
        except CallCycleError as error:
            Chain.caught.append(tuple(error.chain))
            return f"{self.id} cycle"

    @rpc
    async def ask_and_fail(self, path: list[str]) -> str:
        return str(await self.cluster.entity(Chain, path[0]).ask_and_fail(path[1:]))

    @rpc
    async def tell(self, path: list[str]) -> None:
        """Telling waits for nobody: no cycle."""
        Chain.told.append(self.id)
        if path:
            await self.cluster.entity(Chain, path[0]).tell.send(path[1:])

    @rpc
    async def one_after_the_other(self, id: str) -> list[str]:
        return [await self.cluster.entity(Chain, id).ask([]) for _ in range(2)]


@pytest.fixture(autouse=True)
def fresh() -> None:
    Chain.caught, Chain.told = [], []


@pytest.mark.parametrize(
    ("path", "answer", "chain"),
    [
        (["a"], "a cycle", ["a", "a"]),
        (["b", "a"], "a b cycle", ["a", "b", "a"]),
        (["b", "c", "b"], "a b c cycle", ["a", "b", "c", "b"]),
        (["b", "c", "d"], "a b c d", None),
    ],
)
async def test_it_is_raised_at_once(
    make_cluster: MakeCluster, path: list[str], answer: str, chain: list[str] | None
) -> None:
    async with make_cluster(Chain) as first, make_cluster(Chain) as second:
        await until(lambda: owns_all(first, second))
        begin = time.monotonic()
        assert await first.entity(Chain, "a").ask(path) == answer
        assert time.monotonic() - begin < 20  # far below the timeout of 30 s
        assert Chain.caught == ([] if chain is None else [tuple(f"Chain/{id}" for id in chain)])


async def test_not_caught_it_comes_back_to_the_first(make_cluster: MakeCluster) -> None:
    async with make_cluster(Chain) as cluster:
        with pytest.raises(HandlerFailedError) as caught:
            await cluster.entity(Chain, "a").ask_and_fail(["b", "a"])
        assert "CallCycle" in caught.value.remote_message + caught.value.remote_traceback


async def test_asking_the_same_one_twice_is_none(make_cluster: MakeCluster) -> None:
    async with make_cluster(Chain) as cluster:
        assert await cluster.entity(Chain, "a").one_after_the_other("b") == ["b", "b"]


async def test_telling_in_a_circle_is_none(make_cluster: MakeCluster) -> None:
    async with make_cluster(Chain) as cluster:
        await cluster.entity(Chain, "a").tell(["b", "a", "a"])
        await until(lambda: Chain.told == ["a", "b", "a", "a"])
