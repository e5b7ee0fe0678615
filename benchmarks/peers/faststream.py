"""faststream: a stream read by a group, up to 100 records a read and 100 handled at once, without a log."""

from __future__ import annotations

from faststream import FastStream
from faststream.redis import RedisBroker, StreamSub

from .arrivals import URL, arrive
from .producing import Message, measure, on_uvloop


async def handle(message: Message) -> None:
    """Do nothing but arrive."""
    arrive(message)


def consume() -> None:
    """Handle what comes, for ever."""

    async def main() -> None:
        broker = RedisBroker(URL, logger=None)
        stream = StreamSub("box", group="g", consumer="c", max_records=100)
        broker.subscriber(stream=stream, max_workers=100)(handle)
        await FastStream(broker, logger=None).run()

    on_uvloop(main)


def produce() -> None:
    """Measure."""

    async def main() -> None:
        async with RedisBroker(URL, logger=None) as broker:
            await measure(lambda message: broker.publish(message, stream="box"))

    on_uvloop(main)
