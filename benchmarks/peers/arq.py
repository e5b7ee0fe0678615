"""arq: finds work by polling, every 5 ms here (0.5 s by default); 200 at once, no result kept."""

from __future__ import annotations

from typing import Any

from arq import Worker, create_pool, func
from arq.connections import RedisSettings

from .arrivals import URL, arrive
from .producing import Message, measure, on_uvloop


async def handle(_: dict[str, Any], message: Message) -> None:
    """Do nothing but arrive."""
    arrive(message)


def consume() -> None:
    """Handle what comes, for ever."""

    async def main() -> None:
        consumer = Worker(
            [func(handle, keep_result=0)],
            redis_settings=RedisSettings.from_dsn(URL),
            max_jobs=200,
            poll_delay=0.005,
            log_results=False,
            handle_signals=False,
        )
        await consumer.async_run()

    on_uvloop(main)


def produce() -> None:
    """Measure."""

    async def main() -> None:
        pool = await create_pool(RedisSettings.from_dsn(URL))
        await measure(lambda message: pool.enqueue_job("handle", message))

    on_uvloop(main)
