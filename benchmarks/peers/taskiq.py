"""taskiq with taskiq-redis: one process, 200 at once and 200 ahead, uvloop (its own choice), no results.

The variant: messages in a stream (acknowledged when they have run) or in a list (gone when taken).
"""

from __future__ import annotations

import os
import sys

from taskiq_redis import ListQueueBroker, RedisStreamBroker

from .arrivals import URL, VARIANT, arrive
from .producing import Message, measure, on_uvloop

broker = (RedisStreamBroker if VARIANT == "stream" else ListQueueBroker)(URL)


async def _handle(message: Message) -> None:
    arrive(message)


handle = broker.task(task_name="handle")(_handle)


def consume() -> None:
    """Become taskiq's own command, which handles what comes."""
    limits = ("--workers", "1", "--max-async-tasks", "200", "--max-prefetch", "200", "--log-level", "WARNING")
    os.execv(sys.executable, (sys.executable, "-m", "taskiq", "worker", f"{__name__}:broker", *limits))


def produce() -> None:
    """Measure."""

    async def main() -> None:
        await broker.startup()
        await measure(handle.kiq)
        await broker.shutdown()

    on_uvloop(main)
