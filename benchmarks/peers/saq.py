"""saq: 100 at once, no result kept (ttl -1)."""

from __future__ import annotations

from typing import Any

from saq import Queue, Worker

from .arrivals import URL, arrive
from .producing import Message, measure, on_uvloop


async def handle(_: dict[str, Any], *, message: Message) -> None:
    """Do nothing but arrive."""
    arrive(message)


def consume() -> None:
    """Handle what comes, for ever."""

    async def main() -> None:
        queue = Queue.from_url(URL)
        await queue.connect()
        await Worker(queue, functions=[handle], concurrency=100).start()

    on_uvloop(main)


def produce() -> None:
    """Measure."""

    async def main() -> None:
        queue = Queue.from_url(URL)
        await queue.connect()
        await measure(lambda message: queue.enqueue("handle", message=message, ttl=-1))
        await queue.disconnect()

    on_uvloop(main)
