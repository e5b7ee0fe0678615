"""The producer's side of every peer: waits for its consumer, sends as fast as it can, tells the rate.

Standard library only. What it found goes to stdout as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

from .arrivals import Arrivals

LANES = 32
"""Sends under way at once, where a peer's sends are awaited one by one."""
CHUNK = 100
WARM_UP = 1_000
PATIENCE = 120.0

Message = dict[str, Any]
Send = Callable[[Message], Awaitable[object]]
SendMany = Callable[[list[Message]], Awaitable[object]]


async def measure(send: Send, send_many: SendMany | None = None, *, lanes: int = LANES) -> None:
    """Measure throughput, then latency; how many messages of each are the process' last arguments."""
    messages, stamps = int(sys.argv[-2]), int(sys.argv[-1])
    await _until_it_answers(send)
    await _flood(send, send_many, lanes, WARM_UP)
    found = await _flood(send, send_many, lanes, messages)
    if stamps:
        found |= await _one_by_one(send, stamps)
    print(json.dumps(found), flush=True)


def measure_blocking(send: Callable[[Message], object]) -> None:
    """The same for a client that blocks: one send after the other."""

    async def awaited(message: Message) -> None:
        send(message)

    asyncio.run(measure(awaited, lanes=1))


def on_uvloop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run an async main on uvloop."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def _until_it_answers(send: Send) -> None:
    """Groups that begin with what comes after them miss the first message: send until one comes through."""
    for attempt in range(60):
        arrivals = Arrivals(f"up{attempt}", 1)
        await send(arrivals.message(0))
        if not await _wait(arrivals, 0.5):
            return
    raise SystemExit("its consumer never answered")


async def _flood(send: Send, send_many: SendMany | None, lanes: int, messages: int) -> dict[str, float]:
    arrivals = Arrivals(f"flood{messages}", messages)
    began, cpu = time.monotonic_ns(), time.process_time()
    if send_many is not None:
        for start in range(0, messages, CHUNK):
            await send_many([arrivals.message(n) for n in range(start, min(start + CHUNK, messages))])
    else:
        numbers = iter(range(messages))
        await asyncio.gather(*(_send_all(send, arrivals, numbers) for _ in range(lanes)))
    spent = time.process_time() - cpu
    lost = await _wait(arrivals, PATIENCE)
    took = (max(arrivals.times()) - began) / 1e9
    return {"per_second": messages / took, "sender_cpu_us": spent / messages * 1e6, "lost": lost}


async def _send_all(send: Send, arrivals: Arrivals, numbers: Iterator[int]) -> None:
    for number in numbers:
        await send(arrivals.message(number))


async def _one_by_one(send: Send, stamps: int) -> dict[str, float]:
    """One message every 5 ms: how long is each on its way?"""
    arrivals, sent = Arrivals("stamps", stamps), list[int]()
    began = time.monotonic()
    for number in range(stamps):
        await asyncio.sleep(max(0.0, began + number * 0.005 - time.monotonic()))
        message = arrivals.message(number)
        sent.append(message["t"])
        await send(message)
    await _wait(arrivals, 10.0)
    late = sorted(then - before for then, before in zip(arrivals.times(), sent, strict=True) if then)
    return {"p50_ms": late[len(late) // 2] / 1e6, "p99_ms": late[int(len(late) * 0.99)] / 1e6}


async def _wait(arrivals: Arrivals, seconds: float) -> int:
    """Wait until all have run; return how many have not."""
    end = time.monotonic() + seconds
    while (missing := arrivals.missing()) and time.monotonic() < end:
        await asyncio.sleep(0.02)
    return missing
