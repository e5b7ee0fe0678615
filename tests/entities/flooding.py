"""One of several processes that flood a mailbox; for the test of its bound."""

from __future__ import annotations

import json
import sys
import warnings

import anyio

from redis_cluster_kit import Cluster, Entity, MailboxFullError, ShortLeaseWarning, rpc
from redis_cluster_kit.testing import emit


class Flooded(Entity[None], name="flooded", mailbox_capacity=100):
    @rpc
    async def hear(self, name: str) -> None: ...


async def main(options: str) -> None:
    from tests_entities_quick import quick  # put there by the test

    given = json.loads(options)
    warnings.simplefilter("ignore", ShortLeaseWarning)
    cluster = Cluster(
        given["redis"], given["database"], namespace=given["namespace"], settings=quick(), hosting=False
    )
    async with cluster:
        emit("ready")
        await anyio.to_thread.run_sync(sys.stdin.readline)
        accepted = refused = 0
        entity = cluster.entity(Flooded, "f")

        async def send(number: int) -> None:
            nonlocal accepted, refused
            try:
                await entity.hear.send(str(number))
                accepted += 1
            except MailboxFullError:
                refused += 1

        async with anyio.create_task_group() as tasks:
            for number in range(given["count"]):
                tasks.start_soon(send, number)
        emit("done", accepted=accepted, refused=refused)
