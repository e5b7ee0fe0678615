"""Eight processes that flood one mailbox at the same moment; for the test of its bound.

They are forked from one that has imported everything: eight imports would take longer than the test.
"""

from __future__ import annotations

import json
import os
import traceback

import anyio
import anyio.to_thread

from redis_cluster_kit import Cluster, Entity, MailboxFullError, Settings, ShardSettings, rpc
from redis_cluster_kit.testing import emit
from redis_cluster_kit.testing.child_events import die_with_parent

PROCESSES = 8


class Flooded(Entity[None], name="flooded", mailbox_capacity=100):
    @rpc
    async def hear(self, name: str) -> None: ...


def main(options: str) -> None:
    given = json.loads(options)
    ready_in, ready_out = os.pipe()
    start_in, start_out = os.pipe()
    parent = os.getpid()
    for _ in range(PROCESSES):
        if os.fork() == 0:
            os.close(start_out)
            die_with_parent(parent)
            _run(given, ready_out, start_in)
    for _ in range(PROCESSES):
        os.read(ready_in, 1)
    os.close(start_out)  # all of them see the end of this pipe at once
    codes = [os.wait()[1] for _ in range(PROCESSES)]
    emit("over", codes=codes)


def _run(given: dict[str, str], ready: int, start: int) -> None:
    try:
        anyio.run(_flood, given, ready, start)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


async def _flood(given: dict[str, str], ready: int, start: int) -> None:
    settings = Settings(shards=ShardSettings(per_group=4, partitions=2))
    cluster = Cluster(
        given["redis"], given["database"], namespace=given["namespace"], settings=settings, hosting=False
    )
    count = {"accepted": 0, "refused": 0}

    async def send(number: int) -> None:
        try:
            await cluster.entity(Flooded, "f").hear.send(str(number))
            count["accepted"] += 1
        except MailboxFullError:
            count["refused"] += 1

    async with cluster:
        os.write(ready, b".")
        await anyio.to_thread.run_sync(os.read, start, 1)
        async with anyio.create_task_group() as tasks:
            for number in range(int(given["count"])):
                tasks.start_soon(send, number)
        emit("done", **count)
