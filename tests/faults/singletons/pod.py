"""A pod in a process of its own with one singleton, `counter`: it counts in its state and says what it did.

Commands: `stop` lets it stop itself right before its next write, `stop inside` inside an open transaction of
the database; `blind` makes it forget everything it knows about its own lease, so that only the stores refuse.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import warnings
from datetime import timedelta
from typing import Any

import anyio
import msgspec
from sqlalchemy import Connection, text

from redis_cluster_kit import (
    Cluster,
    FencedError,
    LeaseSettings,
    Registry,
    Settings,
    ShardSettings,
    ShortLeaseWarning,
    SingletonContext,
    current,
)
from redis_cluster_kit.ownership import OwnedShard
from redis_cluster_kit.settings import DatabaseSettings
from redis_cluster_kit.storage import Version
from redis_cluster_kit.testing import commands, emit


class Count(msgspec.Struct):
    seen: int = 0
    fences: list[int] = []


class Pod:
    """What the singleton is told by the test."""

    def __init__(self) -> None:
        self.orders: list[str] = []

    async def obey(self) -> None:
        async for order in commands():
            if order == "blind":
                OwnedShard.check = lambda self: None  # type: ignore[method-assign]
            else:
                self.orders.append(order)
            emit("heard", order=order)

    def registry(self) -> Registry:
        registry = Registry()
        registry.singleton(
            "counter", state=Count, on_become_leader=self.become, on_lose_leadership=self.lose
        )(self.count)
        return registry

    async def become(self, ctx: SingletonContext[Count]) -> None:
        emit("leading", fence=ctx.fence, seen=ctx.state.seen)

    async def lose(self, ctx: SingletonContext[Count]) -> None:
        emit("lost", fence=ctx.fence)

    async def count(self, ctx: SingletonContext[Count]) -> None:
        while True:
            order = self.orders.pop() if self.orders else ""
            if order == "stop":
                await self.write_late(ctx)
            elif order == "stop inside":
                await self.stop_inside(ctx)
            await self.write(ctx)
            await anyio.sleep(0.01)

    async def write(self, ctx: SingletonContext[Count]) -> None:
        state = ctx.state
        await ctx.set(Count(state.seen + 1, [*state.fences[-50:], ctx.fence]))
        emit("saved", seen=state.seen + 1, fence=ctx.fence, runner=current().runner_id)

    async def write_late(self, ctx: SingletonContext[Count]) -> None:
        """Stop as any process may be stopped, and write first thing after waking up."""
        emit("stopping", seen=ctx.state.seen, fence=ctx.fence)
        os.kill(os.getpid(), signal.SIGSTOP)
        with anyio.CancelScope(shield=True):  # it does not even hear that it was cancelled
            await self.try_everywhere(ctx)

    async def try_everywhere(self, ctx: SingletonContext[Count]) -> None:
        leader: Any = ctx._leadership
        refused: list[str] = []
        try:
            await ctx.set(Count(1_000_000, []))
        except FencedError as error:
            refused.append(error.store)
        try:
            late = Version(1_000_000, 1, msgspec.msgpack.encode(Count(1_000_000)))
            await leader._host.store.copy(leader._state._holder, late)
        except FencedError as error:
            refused.append(error.store)
        fenced = ctx.cluster.joined_runner().host.counters.fenced
        emit("refused", stores=refused, fence=ctx.fence, fenced=fenced)

    async def stop_inside(self, ctx: SingletonContext[Count]) -> None:
        """Stop while a transaction of this leader holds the register's row and the state's."""
        database = ctx.cluster.joined_runner().database

        def work(connection: Connection) -> None:
            connection.execute(text("UPDATE rck_fences SET nonce = nonce"))
            connection.execute(text("UPDATE rck_singleton_state SET version = version"))
            emit("stopping", seen=ctx.state.seen, fence=ctx.fence)
            # To this very thread: sent to the process, another one takes it, and this might go on to commit.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

        await database.transaction(work, timeout=5)
        emit("survived")


async def say_when_settled(cluster: Cluster, pods: int) -> None:
    """When it knows all others and owns what it should: nothing moves any more until something happens."""
    runner = cluster.joined_runner()
    ownership = runner.ownership
    assert ownership is not None
    while (
        len(runner.membership.members) < pods
        or ownership._planned_for is not runner.membership.members
        or ownership.missing
    ):
        await anyio.sleep(0.01)
    emit("settled", runner=cluster.runner_id)


async def main(options: str) -> None:
    given = json.loads(options)
    warnings.simplefilter("ignore", ShortLeaseWarning)
    ttl = timedelta(seconds=given.get("ttl", 1))
    settings = Settings(
        lease=LeaseSettings(ttl=ttl),
        shards=ShardSettings(per_group=4),
        database=DatabaseSettings(statement_timeout=ttl * 0.9),
    )
    pod = Pod()
    cluster = Cluster(
        given["redis"],
        given["database"],
        namespace=given["namespace"],
        settings=settings,
        include=[pod.registry()],
    )
    async with cluster, anyio.create_task_group() as tasks:
        tasks.start_soon(pod.obey)
        tasks.start_soon(say_when_settled, cluster, given["pods"])
        await cluster.run_forever()
        tasks.cancel_scope.cancel()
    emit("left")
