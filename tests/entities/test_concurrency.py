"""`concurrency` above 1: readonly turns overlap on copies of their own, writers run alone."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest

from redis_cluster_kit import Entity, HandlerFailedError, rpc
from redis_cluster_kit.testing import until

from .account import QUICKLY
from .conftest import MakeCluster


class Page(msgspec.Struct):
    lines: list[str] = []


class Watched:
    """What the test sees of turns, and lets go on."""

    begun: list[str]
    running: set[str]
    most: int
    released: set[str]

    @classmethod
    def reset(cls) -> None:
        cls.begun, cls.running, cls.most, cls.released = [], set(), 0, set()

    @classmethod
    def runs(cls, name: str) -> bool:
        return cls.running == {name}

    @classmethod
    async def turn(cls, name: str) -> None:
        cls.begun.append(name)
        cls.running.add(name)
        cls.most = max(cls.most, len(cls.running))
        try:
            await until(lambda: name in cls.released or "all" in cls.released)
        finally:
            cls.running.discard(name)


class Wiki(Entity[Page], concurrency=3, retry=QUICKLY):
    @rpc(readonly=True)
    async def read(self, name: str) -> list[str]:
        self.state.lines.append(f"seen by {name}")
        await Watched.turn(name)
        return self.state.lines

    @rpc
    async def write(self, name: str) -> int:
        await Watched.turn(name)
        self.state.lines.append(name)
        return len(self.state.lines)

    @rpc(readonly=True)
    async def fail(self, name: str) -> None:
        Watched.begun.append(name)
        raise ValueError(name)


class Stateless(Entity[None], concurrency=3):
    @rpc
    async def work(self, name: str) -> str:
        await Watched.turn(name)
        return name


class Serial(Entity[None]):
    @rpc
    async def work(self, name: str) -> str:
        await Watched.turn(name)
        return name


@pytest.fixture(autouse=True)
def fresh() -> None:
    Watched.reset()


async def test_readers_overlap_up_to_the_limit_each_with_its_own_copy(make_cluster: MakeCluster) -> None:
    async with make_cluster(Wiki) as cluster:
        wiki = cluster.entity(Wiki, "w")
        Watched.released.add("first")
        await wiki.write("first")
        receipts = [await wiki.read.send(name) for name in "abcde"]
        await until(lambda: Watched.running == {"a", "b", "c"})
        assert Watched.begun == ["first", "a", "b", "c"]  # in order
        Watched.released.add("b")
        await until(lambda: Watched.running == {"a", "c", "d"})
        Watched.released.add("all")
        results = [await receipt.result() for receipt in receipts]
        assert results == [["first", f"seen by {name}"] for name in "abcde"]
        assert Watched.most == 3


async def test_a_writer_runs_alone_in_its_place(make_cluster: MakeCluster) -> None:
    async with make_cluster(Wiki) as cluster:
        wiki = cluster.entity(Wiki, "w")
        before = [await wiki.read.send(name) for name in "ab"]
        await until(lambda: Watched.running == {"a", "b"})
        write = await wiki.write.send("w")
        after = [await wiki.read.send(name) for name in "cd"]
        Watched.released.add("a")
        assert await before[0].result() == ["seen by a"]
        await cluster.poll()
        assert Watched.running == {"b"}  # the writer waits, and who came after it too
        Watched.released.add("b")
        await until(lambda: Watched.running == {"w"})
        await cluster.poll()
        assert Watched.begun == ["a", "b", "w"]
        Watched.released.add("w")
        await until(lambda: Watched.running == {"c", "d"})
        Watched.released.add("all")
        assert await write.result() == 1
        assert [await one.result() for one in after] == [["w", "seen by c"], ["w", "seen by d"]]
        assert await before[1].result() == ["seen by b"]


async def test_without_state_everything_overlaps(make_cluster: MakeCluster) -> None:
    async with make_cluster(Stateless) as cluster:
        entity = cluster.entity(Stateless, "s")
        receipts = [await entity.work.send(name) for name in "abcd"]
        await until(lambda: Watched.running == {"a", "b", "c"})
        Watched.released.add("all")
        assert [await receipt.result() for receipt in receipts] == list("abcd")
        assert Watched.begun == list("abcd")


async def test_with_one_at_a_time_nothing_overlaps(make_cluster: MakeCluster) -> None:
    async with make_cluster(Serial) as cluster:
        entity = cluster.entity(Serial, "s")
        receipts = [await entity.work.send(name) for name in "abc"]
        for name in "abc":
            await until(partial(Watched.runs, name))
            Watched.released.add(name)
        assert [await receipt.result() for receipt in receipts] == list("abc")
        assert Watched.most == 1


async def test_a_reader_that_fails_leaves_the_others_alone(make_cluster: MakeCluster) -> None:
    async with make_cluster(Wiki) as cluster:
        wiki = cluster.entity(Wiki, "w")
        slow = await wiki.read.send("slow")
        await until(lambda: Watched.running == {"slow"})
        with pytest.raises(HandlerFailedError, match="bad"):
            await wiki.fail("bad")
        assert Watched.begun.count("bad") == 3
        assert Watched.running == {"slow"}
        Watched.released.add("all")
        assert await slow.result() == ["seen by slow"]
        assert await wiki.write("w") == 1


async def test_a_lot_at_once(make_cluster: MakeCluster) -> None:
    """Readers and writers as they come: nothing is lost, and each reader sees whole writes."""
    Watched.released.add("all")
    async with make_cluster(Wiki) as cluster:
        wiki = cluster.entity(Wiki, "w")
        calls = [
            wiki.write(str(number)) if number % 4 == 0 else wiki.read(str(number)) for number in range(80)
        ]
        results = await asyncio.gather(*calls)
        assert sorted(result for result in results if isinstance(result, int)) == list(range(1, 21))
        final = await wiki.read("last")
        assert [line for line in final if not line.startswith("seen")] == final[:20]
        assert sorted(map(int, final[:20])) == list(range(0, 80, 4))
