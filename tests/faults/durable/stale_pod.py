"""A pod with an entity and a singleton whose one step says which pod has run it.

Commands: `go` lets the steps return, `stop` stops the process first. The option `blind` lets it know nothing
of its own leases, so that only the database refuses.
"""

from __future__ import annotations

import json
import os
import signal
import warnings
from datetime import timedelta
from typing import Any

import anyio
import msgspec

from redis_cluster_kit import (
    Cluster,
    Entity,
    FencedError,
    LeaseSettings,
    Registry,
    Settings,
    ShardSettings,
    ShortLeaseWarning,
    SingletonContext,
    rpc,
)
from redis_cluster_kit.entity.durable import Durable
from redis_cluster_kit.ownership import OwnedShard
from redis_cluster_kit.testing import commands, emit


class Pod:
    """What the steps are told by the test."""

    name = ""
    gate = anyio.Event()

    @classmethod
    async def obey(cls) -> None:
        async for order in commands():
            if order == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            if order in ("go", "stop"):
                cls.gate.set()
            emit("heard", order=order)


async def who(kind: str) -> str:
    emit("inside", kind=kind)
    await Pod.gate.wait()
    return Pod.name


async def ask(here: Durable, kind: str) -> str:
    """Do the step, shielded: losing the shard cancels handlers, and here the stores are to be tried."""
    try:
        with anyio.CancelScope(shield=True):
            by = await here.step("who", who, kind)
    except FencedError as error:
        emit("tried", kind=kind, refused_by=error.store)
        raise
    emit("tried", kind=kind, refused_by="nobody")
    return by


class Answer(msgspec.Struct):
    by: str = ""


class Asked(Entity[Answer], name="asked"):
    @rpc
    async def ask(self) -> str:
        self.state.by = await ask(self, "entity")
        return self.state.by


registry = Registry()


@registry.singleton("asked", state=Answer)
async def asked(ctx: SingletonContext[Answer]) -> None:
    await ctx.update(by=await ask(ctx, "singleton"))


async def main(options: str) -> None:
    given: dict[str, Any] = json.loads(options)
    Pod.name = given["name"]
    if given["blind"]:
        OwnedShard.check = lambda self: None  # type: ignore[method-assign]
    warnings.simplefilter("ignore", ShortLeaseWarning)
    settings = Settings(
        lease=LeaseSettings(ttl=timedelta(seconds=1)),
        shards=ShardSettings(per_group=2, partitions=1),
    )
    cluster = Cluster(
        given["redis"],
        given["database"],
        namespace=given["namespace"],
        settings=settings,
        entities=[Asked],
        include=[registry],
    )
    async with cluster, anyio.create_task_group() as tasks:
        tasks.start_soon(Pod.obey)
        receipt = await cluster.entity(Asked, "a").ask.options(idempotency_key="once").send()
        emit("joined")
        by = await receipt.result(timeout=60)
        with anyio.fail_after(60):
            while (found := await cluster.singleton_state("asked", Answer, fresh=True)) is None:
                await anyio.sleep(0.02)
        emit("done", entity=by, singleton=found.state.by)
        await anyio.sleep_forever()
