"""A process that has imported everything and forks a pod for each command: a pod costs no new interpreter."""

from __future__ import annotations

import gc
import json
import os
import select
import sys
import traceback
from typing import Any

import anyio

from redis_cluster_kit.testing import emit
from redis_cluster_kit.testing.child_events import die_with_parent
from tests.faults.durable import play_coordinator, play_orders

PLAYS = {"orders": play_orders.main, "coordinator": play_coordinator.main}


def main() -> None:
    """Fork a pod per line of stdin, say how each ended, until stdin is closed."""
    gc.freeze()
    pods: dict[int, int] = {}
    rest = b""
    while True:
        if select.select([0], [], [], 0.01)[0]:
            data = os.read(0, 65536)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for command in map(json.loads, lines):
                pods[_fork(command)] = command["pod"]
        while pods and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            emit("ended", pod=pods.pop(ended[0]), code=os.waitstatus_to_exitcode(ended[1]))


def _fork(command: dict[str, Any]) -> int:
    parent = os.getpid()
    if pid := os.fork():
        return pid
    code = 1
    try:
        die_with_parent(parent)
        anyio.run(PLAYS[command["play"]], command)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
