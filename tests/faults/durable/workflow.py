"""A pod in a process of its own with an order workflow, which ends itself at its n-th checkpoint.

Checkpoints stand between all lines of the workflow and before and after everything it asks of a store.
What its steps did outside goes into a file, one line each.
"""

from __future__ import annotations

import functools
import json
import os
import warnings
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import msgspec

from redis_cluster_kit import (
    Cluster,
    DurableSettings,
    Entity,
    LeaseSettings,
    Settings,
    ShardSettings,
    ShortLeaseWarning,
    rpc,
)
from redis_cluster_kit.delivery import Parking
from redis_cluster_kit.runtime.commit import Committer
from redis_cluster_kit.storage import Deferreds, Journal
from redis_cluster_kit.testing import emit

NAP = timedelta(seconds=1.2)


class Ground:
    """Where this pod stands: how many checkpoints it has passed, and where its effects go."""

    log = Path()
    die_at = 0
    passed = 0
    tokens: Path = Path()


def checkpoint(label: str) -> None:
    Ground.passed += 1
    if Ground.passed == Ground.die_at:
        note(f"died {label}")
        os._exit(137)


def note(line: str) -> None:
    with Ground.log.open("a") as log:
        log.write(line + "\n")


class Order(msgspec.Struct):
    done: list[str] = []


async def reserve(order: str) -> str:
    checkpoint("reserve begins")
    note("ran reserve")
    checkpoint("reserve ends")
    return f"place of {order}"


async def charge(order: str, amount: int) -> int:
    checkpoint("charge begins")
    note("ran charge")
    checkpoint("charge ends")
    return amount * 100


def ship(place: str, paid: int) -> str:
    note("ran ship")
    return f"parcel from {place}, paid {paid}"


class Workflow(Entity[Order], name="workflow"):
    @rpc
    async def begin(self, amount: int) -> list[str]:
        checkpoint("handler begins")
        self.state.done.append(f"begun {len(self.state.done)}")
        place = await self.step("reserve", reserve, self.id)
        checkpoint("reserved")
        paid = await self.step("charge", charge, self.id, amount)
        checkpoint("charged")
        approval = self.deferred("approval", bool)
        Ground.tokens.write_text(approval.token)
        checkpoint("asked")
        approved = await approval
        checkpoint("approved")
        await self.sleep(NAP, name="cool down")
        checkpoint("slept")
        parcel = await self.step("ship", ship, place, paid)
        checkpoint("shipped")
        self.state.done += [f"approved {approved}", parcel]
        return self.state.done

    @rpc(readonly=True)
    async def seen(self) -> list[str]:
        return self.state.done


def watch(owner: type[Any], name: str) -> None:
    """Stand before and after a call of a store."""
    real: Callable[..., Awaitable[Any]] = getattr(owner, name)

    @functools.wraps(real)
    async def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        what = f"{name} {getattr(args[1], 'name', '')}" if name == "record" else name
        checkpoint(f"before {what}")
        found = await real(self, *args, **kwargs)
        checkpoint(f"after {what}")
        return found

    setattr(owner, name, watched)


async def clerk(cluster: Cluster) -> None:
    """Approve what asks for it, again and again: as a mail whose link is clicked twice."""
    while True:
        await anyio.sleep(0.05)
        token = Ground.tokens.read_text() if Ground.tokens.exists() else ""
        if token:
            await cluster.complete(token, True)
            checkpoint("clerk done")
            await anyio.sleep(3600)


async def main(options: str) -> None:
    given = json.loads(options)
    warnings.simplefilter("ignore", ShortLeaseWarning)
    Ground.log, Ground.tokens, Ground.die_at = Path(given["log"]), Path(given["tokens"]), given["die_at"]
    settings = Settings(
        lease=LeaseSettings(ttl=timedelta(seconds=1)),
        shards=ShardSettings(per_group=2, partitions=1),
        durable=DurableSettings(wake_poll=timedelta(milliseconds=given.get("wake_poll", 300))),
    )
    for owner, names in (
        (Journal, ("open", "record", "forget")),
        (Deferreds, ("resolve", "woken")),
        (Parking, ("park",)),
        (Committer, ("commit",)),
    ):
        for name in names:
            watch(owner, name)
    cluster = Cluster(
        given["redis"],
        given["database"],
        namespace=given["namespace"],
        settings=settings,
        entities=[Workflow],
    )
    async with cluster, anyio.create_task_group() as tasks:
        tasks.start_soon(clerk, cluster)
        order = cluster.entity(Workflow, "17")
        receipt = await order.begin.options(idempotency_key="order-17").send(5)
        emit("sent")
        result = await receipt.result(timeout=30)
        seen = await order.seen()
        await anyio.sleep(0.5)  # journals of ended executions are deleted behind the turn
        emit("done", result=result, seen=seen, passed=Ground.passed)
        tasks.cancel_scope.cancel()
