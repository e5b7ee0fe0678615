"""Broadcasts reach every entity of a type that is in memory anywhere, and say how many took them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from redis_cluster_kit import Entity, MalformedMessageError, rpc
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, owns_all, residents


class Heard(msgspec.Struct):
    names: list[str] = []


class Member(Entity[Heard]):
    @rpc
    async def hear(self, name: str) -> None:
        self.state.names.append(name)

    @rpc(readonly=True)
    async def heard(self) -> list[str]:
        return self.state.names


class Other(Entity[None]):
    @rpc
    async def touch(self) -> None: ...


class Narrow(Entity[None], mailbox_capacity=1):
    gate: asyncio.Event

    @rpc
    async def hold(self) -> None:
        await Narrow.gate.wait()


class Caster(Entity[None]):
    @rpc
    async def cast(self, name: str) -> int:
        return int(await self.cluster.broadcast(Member.hear, name))


async def test_it_counts_who_took_it(make_cluster: MakeCluster) -> None:
    async with make_cluster(Member, Other) as first, make_cluster(Member, Other) as second:
        await until(lambda: owns_all(first, second))
        names = [str(number) for number in range(20)]
        for name in names:
            await first.entity(Member, name).hear("a")
        await first.entity(Other, "o").touch()
        assert residents(first) > 1
        assert residents(second) > 1
        for pod in (first, second):
            assert await pod.broadcast(Member.hear, "b") == 20
        for name in names:
            assert await first.entity(Member, name).heard() == ["a", "b", "b"]


async def test_nobody_in_memory(make_cluster: MakeCluster) -> None:
    async with make_cluster(Member) as cluster:
        assert await cluster.broadcast(Member.hear, "a") == 0
        assert await cluster.entity(Member, "m").heard() == []


async def test_from_who_hosts_nothing(make_cluster: MakeCluster) -> None:
    async with make_cluster(Member) as cluster, make_cluster(hosting=False) as client:
        await cluster.entity(Member, "m").hear("a")
        assert await client.broadcast(Member.hear, name="b") == 1
        await until(lambda: _heard(cluster.entity(Member, "m"), ["a", "b"]))


async def _heard(member: Member, names: list[str]) -> bool:
    return await member.heard() == names


async def test_from_a_handler(make_cluster: MakeCluster) -> None:
    async with make_cluster(Member, Caster) as cluster:
        await cluster.entity(Member, "m").hear("a")
        assert await cluster.entity(Caster, "c").cast("b") == 1


async def test_a_full_mailbox_is_not_counted(make_cluster: MakeCluster) -> None:
    Narrow.gate = asyncio.Event()
    async with make_cluster(Narrow) as cluster:
        receipts = [await cluster.entity(Narrow, name).hold.send() for name in "ab"]
        await until(lambda: residents(cluster) == 2)
        assert await cluster.broadcast(Narrow.hold) == 0
        Narrow.gate.set()
        for receipt in receipts:
            await receipt.result()
        assert await cluster.broadcast(Narrow.hold) == 2


async def test_what_does_not_fit_is_refused_here(make_cluster: MakeCluster) -> None:
    async with make_cluster(Member) as cluster:
        await cluster.entity(Member, "m").hear("a")
        with pytest.raises(MalformedMessageError):
            await cluster.broadcast(Member.hear, 7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with pytest.raises(TypeError):
            await cluster.broadcast(Member.hear)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        assert await cluster.entity(Member, "m").heard() == ["a"]
