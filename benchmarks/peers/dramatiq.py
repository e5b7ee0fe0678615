"""dramatiq: one process, 8 threads (its default), 100 ahead; it polls at most 5 ms apart instead of 1 s."""

from __future__ import annotations

import os
import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from .arrivals import URL, arrive
from .producing import measure_blocking

broker = RedisBroker(url=URL)
dramatiq.set_broker(broker)
handle = dramatiq.actor(arrive, actor_name="handle")


def consume() -> None:
    """Become dramatiq's own command, which handles what comes."""
    os.environ["dramatiq_worker_timeout"] = "5"  # noqa: SIM112 - its name
    os.environ["dramatiq_queue_prefetch"] = "100"  # noqa: SIM112
    os.execv(sys.executable, (sys.executable, "-m", "dramatiq", __name__, "-p", "1", "-t", "8"))


def produce() -> None:
    """Measure."""
    measure_blocking(handle.send)
