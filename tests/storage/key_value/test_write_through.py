"""A cache before a durable store: which comes first, what a failing cache costs, and who repairs it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest

from redis_cluster_kit.errors import Execution, PersistenceFailedError
from redis_cluster_kit.storage.key_value import MemoryStore, WriteThroughStore

NEVER = timedelta(0)


class Watched(MemoryStore):
    """A store that notes what is asked of it, and fails or hangs when told to."""

    def __init__(self, name: str, log: list[str], breathe: Callable[[], float] | None = None) -> None:
        super().__init__()
        self.name = name
        self.log = log
        self.fails: Exception | None = None
        self.hangs = False
        self._breathe = breathe

    async def _asked(self, what: str) -> None:
        self.log.append(f"{self.name}.{what}")
        if self.hangs:
            await anyio.sleep_forever()
        if self.fails is not None:
            raise self.fails
        if self._breathe is not None:
            await asyncio.sleep(self._breathe())

    async def _read(self, key: str) -> bytes | None:
        await self._asked("read")
        return await super()._read(key)

    async def _write(self, key: str, value: bytes) -> None:
        await self._asked("write")
        await super()._write(key, value)
        if self._breathe is not None:
            await asyncio.sleep(self._breathe())

    async def _delete(self, key: str) -> bool:
        await self._asked("delete")
        return await super()._delete(key)

    async def _wipe(self, prefix: str) -> None:
        await self._asked("wipe")
        await super()._wipe(prefix)


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def cache(log: list[str]) -> Watched:
    return Watched("cache", log)


@pytest.fixture
def durable(log: list[str]) -> Watched:
    return Watched("durable", log)


async def test_the_durable_store_comes_first(log: list[str], cache: Watched, durable: Watched) -> None:
    store = WriteThroughStore(cache, durable)
    for call, first in (
        (store.set("a", b"1"), "durable.write"),
        (store.modify("a", lambda _: b"2"), "durable.read"),
        (store.remove("a"), "durable.delete"),
        (store.clear(), "durable.wipe"),
    ):
        log.clear()
        await call
        assert log[0] == first
        assert any(entry.startswith("cache.") for entry in log)


async def test_both_hold_the_value_and_reads_come_from_the_cache(
    log: list[str], cache: Watched, durable: Watched
) -> None:
    store = WriteThroughStore(cache, durable)
    await store.set("a", b"1")
    assert (await cache.get("a"), await durable.get("a")) == (b"1", b"1")
    log.clear()
    assert [await store.get("a") for _ in range(3)] == [b"1"] * 3
    assert log == ["cache.read"] * 3


async def test_what_the_durable_store_refuses_reaches_no_cache(cache: Watched, durable: Watched) -> None:
    store = WriteThroughStore(cache, durable)
    await store.set("a", b"1")
    durable.fails = PersistenceFailedError(store="database", execution=Execution.UNKNOWN)
    for call in (store.set("a", b"2"), store.modify("a", lambda _: b"2"), store.remove("a")):
        with pytest.raises(PersistenceFailedError):
            await call
    durable.fails = None
    await durable.set("a", b"2")  # an unknown write may have happened
    assert await store.get("a") == b"2", "after a failed write the cache is not believed"
    assert await cache.get("a") == b"2"


@pytest.mark.parametrize("error", [PersistenceFailedError(store="redis"), ConnectionError("gone")], ids=repr)
async def test_a_failed_cache_costs_nothing_and_is_repaired(
    error: Exception, cache: Watched, durable: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    store = WriteThroughStore(cache, durable)
    await store.set("a", b"old")
    await store.set("b", b"old")
    await store.set("c", b"old")
    cache.fails = error
    await store.set("a", b"new")
    assert await store.modify("b", lambda _: b"new") == b"new"
    assert await store.remove("c")
    assert [await store.get(key) for key in "abc"] == [b"new", b"new", None]
    assert "the cache failed" in caplog.text
    cache.fails = None
    assert [await cache.get(key) for key in "abc"] == [b"old"] * 3, "the fault left it stale"
    assert await store.get("a") == b"new"
    assert [await cache.get(key) for key in "abc"] == [b"new", None, None], "one call repaired all"


async def test_a_cleared_store_with_a_failed_cache(cache: Watched, durable: Watched) -> None:
    store = WriteThroughStore(cache, durable)
    await store.set("a", b"1")
    cache.fails = ConnectionError()
    await store.prefix("a").clear()
    await store.set("a", b"1")
    await store.clear()
    assert (await store.get("a"), await store.is_empty(), await store.size()) == (None, True, 0)
    cache.fails = None
    assert await cache.get("a") == b"1", "the fault left it stale"
    assert await store.get("a") is None
    assert await cache.get("a") is None


async def test_a_silent_cache_is_left_alone_for_a_while(cache: Watched, durable: Watched) -> None:
    store = WriteThroughStore(cache, durable, cache_timeout=0.05)
    await store.set("a", b"1")
    cache.hangs = True
    began = time.monotonic()
    for _ in range(100):
        await store.set("a", b"2")
        assert await store.get("a") == b"2"
    assert time.monotonic() - began < 2.0, "one timeout, not two hundred"


async def test_a_stale_cache_is_believed_for_a_limited_time(cache: Watched, durable: Watched) -> None:
    """A process that died between its two writes has told nobody."""
    await WriteThroughStore(cache, durable).set("a", b"old")
    await durable.set("a", b"new")
    fresh = WriteThroughStore(cache, durable)
    assert await fresh.get("a") == b"new", "who has not compared them yet does"
    assert await cache.get("a") == b"new"
    await durable.set("a", b"newer")
    assert await fresh.get("a") == b"new", "within believed_for"
    assert await WriteThroughStore(cache, durable, believed_for=NEVER).get("a") == b"newer"
    assert await cache.get("a") == b"newer"


async def test_the_second_look_failing_does_not_fail_the_write(cache: Watched, durable: Watched) -> None:
    store = WriteThroughStore(cache, durable)

    async def then_fail(key: str, value: bytes) -> None:
        await MemoryStore._write(durable, key, value)
        durable.fails = PersistenceFailedError(store="database")

    durable._write = then_fail  # type: ignore[method-assign]
    await store.set("a", b"1")
    durable.fails = None
    assert await store.get("a") == b"1"


@pytest.mark.parametrize("seed", range(5))
async def test_writers_that_race_leave_no_stale_cache(seed: int) -> None:
    """Several processes, each with its own view; whatever the order, the cache ends up empty or right."""
    chance = random.Random(seed)

    def breathe() -> float:
        return chance.uniform(0, 0.002) if chance.random() < 0.7 else 0.0

    cache, durable = Watched("cache", [], breathe), Watched("durable", [], breathe)
    met = 0

    async def writer(number: int) -> None:
        nonlocal met
        store: Any = WriteThroughStore(cache, durable)
        for turn in range(15):
            key = chance.choice("ab")
            match chance.randrange(4):
                case 0:
                    await store.remove(key)
                case 1:
                    await store.get(key)
                case _:
                    await store.set(key, f"{number}.{turn}".encode())
            met += cache._values.get(key) != durable._values.get(key)

    await asyncio.gather(*(writer(number) for number in range(6)))
    assert met > 0, "nobody raced"
    for key in "ab":
        assert cache._values.get(key) in (None, durable._values.get(key))


async def test_a_cancelled_write_leaves_a_doubt(cache: Watched, durable: Watched) -> None:
    store = WriteThroughStore(cache, durable)
    await store.set("a", b"1")
    cache.hangs = True
    with anyio.move_on_after(0.05) as scope:
        await store.set("a", b"2")
    assert scope.cancelled_caught
    cache.hangs = False
    assert await store.get("a") == b"2"
    assert await cache.get("a") == b"2"


async def test_it_shares_what_it_knows_with_its_prefixes(cache: Watched, durable: Watched) -> None:
    store = WriteThroughStore(cache, durable)
    await store.prefix("n:").set("a", b"old")
    cache.fails = ConnectionError()
    await store.prefix("n:").set("a", b"new")
    cache.fails = None
    assert await store.get("n:a") == b"new"
    assert "WriteThroughStore(MemoryStore(" in repr(store)


async def test_a_doubt_is_not_taken_back_by_who_looked_before(cache: Watched, durable: Watched) -> None:
    """A reader's second look was answered late: a write it has not seen has failed to reach the cache."""
    store = WriteThroughStore(cache, durable)
    await durable.set("a", b"old")
    looked, answer = asyncio.Event(), asyncio.Event()
    read, reads = durable._read, 0

    async def read_late(key: str) -> bytes | None:
        nonlocal reads
        reads += 1
        value = await read(key)
        if reads == 2:
            looked.set()
            await answer.wait()
        return value

    durable._read = read_late  # type: ignore[method-assign]
    reading = asyncio.create_task(store.get("a"))
    await looked.wait()
    cache.fails = ConnectionError()
    await store.set("a", b"new")
    cache.fails = None
    answer.set()
    assert await reading == b"old", "it began before the write"
    assert await cache.get("a") == b"old", "the fault left it stale"
    assert await store.get("a") == b"new"
    assert await cache.get("a") == b"new"
