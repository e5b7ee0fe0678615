"""docket: 50 at once (200 run out of connections), looks every 5 ms, keeps no record; sends in chunks."""

from __future__ import annotations

from datetime import timedelta

from docket import Docket, Worker

from .arrivals import URL, arrive
from .producing import Message, measure, on_uvloop

PROMPT = timedelta(milliseconds=5)


async def handle(message: Message) -> None:
    """Do nothing but arrive."""
    arrive(message)


def _docket() -> Docket:
    return Docket(name="peers", url=URL, execution_ttl=timedelta(0))


def consume() -> None:
    """Handle what comes, for ever."""

    async def main() -> None:
        async with _docket() as docket:
            docket.register(handle)
            async with Worker(
                docket, concurrency=50, minimum_check_interval=PROMPT, scheduling_resolution=PROMPT
            ) as consumer:
                await consumer.run_forever()

    on_uvloop(main)


def produce() -> None:
    """Measure."""

    async def main() -> None:
        async with _docket() as docket:
            docket.register(handle)
            await measure(
                lambda message: docket.add(handle)(message),  # noqa: PLW0108 - each `add` makes an id
                lambda messages: docket.add_many([docket.call(handle)(message) for message in messages]),
            )

    on_uvloop(main)
