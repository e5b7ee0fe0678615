"""Whatever a handler raises, returns or leaves in the state is its own failure: its shard goes on."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import anyio
import msgspec
import pytest

from redis_cluster_kit import DrainSettings, Entity, EntityError, HandlerFailedError, rpc
from redis_cluster_kit.testing import until

from .account import QUICKLY, Account
from .conftest import MakeCluster, host_of, owns_all, quick


class Anything(msgspec.Struct):
    value: Any = None


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Odd(EntityError, code="odd"):
    value: Any = None


class Hostile(Entity[Anything], retry=QUICKLY):
    @rpc(raises=[Odd])
    async def do(self, what: str) -> Any:
        self.state.value = "touched"
        await getattr(self, f"do_{what}")()
        return self.returned(what)

    def returned(self, what: str) -> Any:
        if what == "return_an_object":
            return object()
        if what == "return_itself":
            own: list[Any] = []
            own.append(own)
            return own
        return None

    @rpc(readonly=True)
    async def look(self) -> Any:
        return self.state.value

    async def do_cancel(self) -> None:
        task = asyncio.create_task(asyncio.sleep(60))
        task.cancel()
        await task

    async def do_raise_cancelled(self) -> None:
        raise asyncio.CancelledError

    async def do_unreadable(self) -> None:
        raise UnreadableError

    async def do_surrogate(self) -> None:
        raise ValueError("\ud800")

    async def do_long(self) -> None:
        raise ValueError("x" * 1_000_000)

    async def do_group(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.do_surrogate)

    async def do_stop_iteration(self) -> None:
        raise StopAsyncIteration

    async def do_assert(self) -> None:
        raise AssertionError

    async def do_recursion(self) -> None:
        await self.do_recursion()

    async def do_odd(self) -> None:
        raise Odd(value=object())

    async def do_spoil_state(self) -> None:
        self.state.value = object()

    async def do_replace_state(self) -> None:
        self.state = 7  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]

    async def do_delete_state(self) -> None:
        del self.state

    async def do_return_an_object(self) -> None: ...
    async def do_return_itself(self) -> None: ...


WAYS = sorted(name.removeprefix("do_") for name in vars(Hostile) if name.startswith("do_"))


@pytest.mark.parametrize("what", WAYS)
async def test_it_fails_and_its_shard_goes_on(make_cluster: MakeCluster, what: str) -> None:
    async with make_cluster(Hostile, Account) as cluster:
        await until(lambda: owns_all(cluster))
        before = {shard: host.owned for shard, host in host_of(cluster).shards.items()}
        hostile = cluster.entity(Hostile, "h")
        with pytest.raises(HandlerFailedError):
            await hostile.do.options(timeout=10)(what)
        (letter,) = await cluster.dead_letters.list()
        assert letter.failures == 3
        assert await hostile.look() is None
        assert {shard: host.owned for shard, host in host_of(cluster).shards.items()} == before


async def test_a_hand_off_still_cancels_a_handler(make_cluster: MakeCluster) -> None:
    """The other way round: what the kit cancels is no failure of the handler."""
    settings = quick(drain=DrainSettings(budget=timedelta(milliseconds=50)))
    Sleeper.begun = 0
    async with make_cluster(hosting=False) as client:
        async with make_cluster(Sleeper, settings=settings):
            receipt = await client.entity(Sleeper, "s").sleep_once.send()
            await until(lambda: Sleeper.begun == 1)
        async with make_cluster(Sleeper) as second:
            assert await receipt.result() == 2
            assert await second.dead_letters.list() == []
            assert host_of(second).counters.failures == 0


class Sleeper(Entity[None], retry=QUICKLY):
    begun = 0

    @rpc
    async def sleep_once(self) -> int:
        Sleeper.begun += 1
        if Sleeper.begun == 1:
            await anyio.sleep(3600)
        return Sleeper.begun
