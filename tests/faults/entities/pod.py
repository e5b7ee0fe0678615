"""A pod in a process of its own: it hosts entities whose state is the list of what they applied.

So the store itself says what had an effect, and in which order. The parent uses the classes too.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
import time
import warnings
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import msgspec

from redis_cluster_kit import (
    Cluster,
    DedupeSettings,
    DrainSettings,
    Entity,
    LeaseSettings,
    MailboxFullError,
    Retry,
    Settings,
    ShardLost,
    ShardSettings,
    ShortLeaseWarning,
    current,
    rpc,
)
from redis_cluster_kit.settings import RedisSettings
from redis_cluster_kit.testing import commands, emit

CAPACITY = 16


class Applied(msgspec.Struct):
    """What had an effect, in order."""

    marks: list[str] = []


class Keeper(
    Entity[Applied],
    name="keeper",
    mailbox_capacity=CAPACITY,
    max_idle=timedelta(seconds=1),
    retry=Retry(base=timedelta(milliseconds=20), max_attempts=5),
):
    """Applies marks."""

    @rpc
    async def add(self, mark: str) -> int:
        self.state.marks.append(mark)
        return len(self.state.marks)

    @rpc
    async def slow(self, mark: str, seconds: float) -> int:
        """Take a while, and say when that begins, and which attempt it is."""
        emit("holding", mark=mark, attempt=current().attempt)
        await anyio.sleep(seconds)
        return await self.add(mark)

    @rpc
    async def block(self, mark: str, seconds: float) -> int:
        """The same without letting anybody else run."""
        emit("holding", mark=mark)
        time.sleep(seconds)
        return await self.add(mark)

    @rpc
    async def stumble(self, mark: str, times: int, folder: str) -> int:
        """Fail so often, then apply the mark; what was done before a failure must not be seen."""
        self.state.marks.append(f"{mark}: of a turn that failed")
        tries = Path(folder) / mark.replace("/", "-")
        with tries.open("a") as file:
            file.write("x")
        if len(tries.read_text()) <= times:
            raise RuntimeError("stumbled")
        self.state.marks.pop()
        return await self.add(mark)

    @rpc
    async def kill(self, mark: str) -> int:
        """Take the runner along."""
        emit("killing", mark=mark, pid_of=os.getpid())
        os._exit(9)

    @rpc
    async def pass_on(self, mark: str, to: list[str]) -> int:
        """Apply a mark and send it on, to each of these, with the commit."""
        self.state.marks.append(mark)
        for id in to:
            await self.cluster.entity(Keeper, id).add.send(f"{self.id}>{mark}")
        return len(self.state.marks)

    @rpc(readonly=True)
    async def count(self) -> int:
        return len(self.state.marks)


class Lodger(Keeper, name="lodger", mailbox_capacity=CAPACITY, max_idle=timedelta(hours=1)):
    """A keeper that stays in memory."""


def settings_of(given: dict[str, Any]) -> Settings:
    """What all runners of a fleet have in common, senders too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortLeaseWarning)
        return Settings(
            lease=LeaseSettings(ttl=timedelta(seconds=given["ttl"])),
            shards=ShardSettings(per_group=given["shards"], partitions=4),
            drain=DrainSettings(budget=timedelta(seconds=given.get("budget", 3))),
            dedupe=DedupeSettings(
                generated=timedelta(seconds=given["window"]), relayed=timedelta(seconds=given["window"])
            ),
            redis=RedisSettings(
                command_timeout=timedelta(seconds=1), reader_block=timedelta(milliseconds=400)
            ),
        )


async def answer(cluster: Cluster) -> None:
    """Do what the parent asks for."""
    runner = cluster._runner
    assert runner is not None
    assert runner.ownership is not None
    assert runner.host is not None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count_losses, cluster, losses := Counter[str]())
        async for command in commands():
            if command == "report":
                emit(
                    "report",
                    owned=sorted(map(str, runner.ownership.owned)),
                    shards_lost=losses["lost"],
                    **dataclasses.asdict(runner.host.counters),
                )


async def count_losses(cluster: Cluster, losses: Counter[str]) -> None:
    """Count the shards that were not handed off."""
    async for event in cluster.events():
        if isinstance(event, ShardLost) and not event.was_clean:
            losses["lost"] += 1


async def main(options: str) -> None:
    given = json.loads(options)
    logging.basicConfig(level=logging.INFO if given.get("verbose") else logging.WARNING)
    cluster = Cluster(
        given["redis"],
        given["database"],
        namespace=given["namespace"],
        name=given["name"],
        entities=[Keeper, Lodger],
        settings=settings_of(given),
    )
    async with cluster, anyio.create_task_group() as tasks:
        tasks.start_soon(answer, cluster)
        tasks.start_soon(say_when_it_listens)
        await cluster.run_forever()
        tasks.cancel_scope.cancel()
    emit("left")


async def say_when_it_listens() -> None:
    """SIGTERM has its meaning only from then on."""
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        await anyio.sleep(0.005)
    emit("serving")


async def flood(options: str) -> None:
    """Send as fast as it goes, and say what was told."""
    given = json.loads(options)
    told: Counter[str] = Counter()
    cluster = Cluster(
        given["redis"],
        given["database"],
        namespace=given["namespace"],
        name=given["name"],
        hosting=False,
        settings=settings_of(given),
    )
    async with cluster, anyio.create_task_group() as tasks:
        keeper = cluster.entity(Keeper, given["id"])

        async def send(number: int) -> None:
            try:
                await keeper.add.send(f"{given['name']}/{number}")
            except MailboxFullError:
                told["rejected"] += 1
            else:
                told["accepted"] += 1

        for number in range(given["sends"]):
            tasks.start_soon(send, number)
    emit("told", told=told)
