"""celery: Redis as its broker, two prefork processes, each taking 64 ahead; no gossip, events or results."""

from __future__ import annotations

import os
import sys

from celery import Celery

from .arrivals import URL, arrive
from .producing import measure_blocking

app = Celery("peers", broker=URL)
app.conf.update(
    worker_prefetch_multiplier=64,
    task_send_sent_event=False,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)
handle = app.task(name="handle", ignore_result=True)(arrive)


def consume() -> None:
    """Become celery's own command, which handles what comes."""
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING")
    command = (sys.executable, "-m", "celery", "-A", __name__, "worker", "-P", "prefork", "-c", "2", *quiet)
    os.execv(sys.executable, command)


def produce() -> None:
    """Measure."""
    measure_blocking(handle.delay)
