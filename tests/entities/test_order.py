"""Messages of one sender to one entity are handled in the order in which they were sent."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from functools import partial

import msgspec

from redis_cluster_kit import Cluster, Entity, MailboxFullError, Retry, rpc
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, owns_all


class Log(msgspec.Struct):
    lines: list[tuple[str, int]] = []


class Ordered(
    Entity[Log], mailbox_capacity=20, retry=Retry(base=timedelta(milliseconds=1), factor=1, max_attempts=100)
):
    @rpc
    async def note(self, sender: str, number: int) -> None:
        self.state.lines.append((sender, number))
        if random.random() < 0.1:
            raise ValueError("now and then")

    @rpc(readonly=True)
    async def lines(self) -> list[tuple[str, int]]:
        return self.state.lines


async def send_all(cluster: Cluster, sender: str, id: str, count: int) -> None:
    """One after the other; a refused one again until it is taken."""
    entity = cluster.entity(Ordered, id)
    for number in range(count):
        while True:
            try:
                await entity.note.send(sender, number)
                break
            except MailboxFullError:
                await asyncio.sleep(0.01)


async def all_lines(cluster: Cluster, id: str, count: int) -> list[tuple[str, int]]:
    try:
        lines = await cluster.entity(Ordered, id).lines()
    except MailboxFullError:
        return []
    return lines if len(lines) >= count else []


def check(lines: list[tuple[str, int]], senders: list[str], count: int) -> None:
    assert len(lines) == len(senders) * count
    for sender in senders:
        assert [number for name, number in lines if name == sender] == list(range(count))


async def test_through_retries_and_full_mailboxes(make_cluster: MakeCluster) -> None:
    async with make_cluster(Ordered) as cluster, make_cluster(hosting=False) as other:
        senders = ["a", "b", "c"]
        async with asyncio.TaskGroup() as tasks:
            for sender in senders:
                tasks.create_task(send_all(other if sender == "a" else cluster, sender, "x", 60))
        lines = await until(lambda: all_lines(cluster, "x", 180), timeout=30)
        check(lines, senders, 60)


async def test_through_hand_offs(make_cluster: MakeCluster) -> None:
    """Runners come and go while messages are sent."""
    ids = ["w", "x", "y", "z"]
    async with make_cluster(hosting=False) as client, make_cluster(Ordered) as stays:
        async with asyncio.TaskGroup() as tasks:
            for id in ids:
                tasks.create_task(send_all(client, "s", id, 60))
            for _ in range(2):
                async with make_cluster(Ordered) as guest:
                    await until(partial(owns_all, stays, guest))
                await until(lambda: owns_all(stays))
        for id in ids:
            lines = await until(partial(all_lines, stays, id, 60), timeout=30)
            check(lines, ["s"], 60)
        assert await stays.dead_letters.list() == []
