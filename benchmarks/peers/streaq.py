"""streaq: 200 at once, silent, no result kept; sends in chunks of 100."""

from __future__ import annotations

from streaq import Worker

from .arrivals import URL, arrive
from .producing import Message, measure, on_uvloop

app = Worker(redis_url=URL, concurrency=200, anyio_kwargs={"use_uvloop": True})


async def _handle(message: Message) -> None:
    arrive(message)


handle = app.task(silent=True, ttl=0)(_handle)


def consume() -> None:
    """Handle what comes, for ever."""
    app.run_sync()


def produce() -> None:
    """Measure."""

    async def main() -> None:
        async with app:
            await measure(
                handle.enqueue,
                lambda messages: app.enqueue_many([handle.enqueue(message) for message in messages]),
            )

    on_uvloop(main)
