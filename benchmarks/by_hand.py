"""What redis-py does by hand between two processes: the floor beside which the kit is measured.

Not a benchmark itself. One stream, one consumer group, XADD → XREADGROUP BLOCK; for rates both sides
use pipelines, and the reader saves a state for each message. No ids, no order for each of many, no bound, no
fence, nothing repeated.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.service import NOTE, cpu_seconds, now_ns
from redis_cluster_kit.testing import ChildProcess, commands, emit

CHUNK = 100
"""Messages in a pipeline of the sender, and at most in one read of the reader."""


async def reader(url: str) -> None:
    """Read the stream, answer what asks to be answered, save a state where the message names one."""
    import redis.asyncio

    client = redis.asyncio.Redis.from_url(url)
    await client.xgroup_create("floor", "g", mkstream=True)
    emit("up")
    late: list[int] = []
    handled = 0

    async def obey() -> None:
        async for command in commands():
            if command == "stop":
                return
            emit("figures", late=late, handled=handled, cpu=cpu_seconds())
            late.clear()

    told = asyncio.create_task(obey())
    while not told.done():
        reply: Any = await client.xreadgroup("g", "c", {"floor": ">"}, count=CHUNK, block=100)
        for _, entries in reply or ():
            if b"e" in entries[0][1]:
                await _save(client, entries)
                handled += len(entries)
                continue
            for entry, fields in entries:
                late.append(now_ns() - int(fields[b"t"]))
                if fields.get(b"r"):
                    await client.xadd(fields[b"r"], {"t": fields[b"t"]})
                await client.xack("floor", "g", entry)
    await client.aclose()


async def _save(client: Any, entries: list[Any]) -> None:
    """In one pipeline for all that were read: a state each, the acknowledgement, and the entry away."""
    async with client.pipeline(transaction=False) as pipeline:
        for entry, fields in entries:
            pipeline.hset(fields[b"e"], mapping={"balance": 1, "last": fields[b"n"]})
            pipeline.xack("floor", "g", entry)
            pipeline.xdel("floor", entry)
        await pipeline.execute()


class ByHand:
    """The sender's side, and the reader in a process of its own."""

    def __init__(self, child: ChildProcess, client: Any) -> None:
        self._child = child
        self._client = client
        self._last: Any = "0"

    async def figures(self) -> Any:
        """Ask the reader what it has done."""
        await self._child.send("figures")
        return (await self._child.wait_for("figures")).fields

    async def one_way(self, number: int) -> list[int]:
        """Send one after the other; return how long each was on its way."""
        for _ in range(number):
            await self._client.xadd("floor", {"t": now_ns(), "n": NOTE})
            await asyncio.sleep(0.002)
        late: list[int] = []
        while len(late) < number:
            late += (await self.figures())["late"]
        return late

    async def asked(self, number: int) -> list[int]:
        """Ask one after the other; return how long each took."""
        took: list[int] = []
        for _ in range(number):
            began = now_ns()
            await self._client.xadd("floor", {"t": began, "n": NOTE, "r": "replies"})
            reply: Any = await self._client.xread({"replies": self._last}, block=1000)
            self._last = reply[0][1][-1][0]
            took.append(now_ns() - began)
        await self.figures()
        return took

    async def rate(self, messages: int, entities: int) -> float:
        """Send in pipelines; return messages a second until all are handled and acknowledged."""
        before = (await self.figures())["handled"]
        began = time.perf_counter()
        for first in range(0, messages, CHUNK):
            async with self._client.pipeline(transaction=False) as pipeline:
                for number in range(first, min(first + CHUNK, messages)):
                    pipeline.xadd("floor", {"e": f"e{number % entities}", "n": NOTE})
                await pipeline.execute()
        while (await self.figures())["handled"] < before + messages:
            await asyncio.sleep(0.01)
        return messages / (time.perf_counter() - began)


@asynccontextmanager
async def by_hand(url: str) -> AsyncGenerator[ByHand]:
    """Start the reader and connect the sender."""
    import redis.asyncio

    child = ChildProcess("benchmarks.by_hand:reader", url, pythonpath=[Path(__file__).parent.parent])
    async with child:
        await child.wait_for("up")
        client = redis.asyncio.Redis.from_url(url)
        yield ByHand(child, client)
        await client.aclose()
        await child.send("stop")
        await child.wait()
