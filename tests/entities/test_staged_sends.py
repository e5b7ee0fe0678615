"""What a turn sends leaves with its commit: all of it, in order, or nothing."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from redis_cluster_kit import Entity, HandlerFailedError, Retry, ShardSettings, rpc
from redis_cluster_kit.testing import until

from .account import QUICKLY
from .conftest import MakeCluster, keys_of, quick


class Heard(msgspec.Struct):
    names: list[str] = []


class Listener(Entity[Heard], shard_group="others", mailbox_capacity=1_000):
    @rpc
    async def hear(self, name: str) -> int:
        self.state.names.append(name)
        return len(self.state.names)

    @rpc(readonly=True)
    async def heard(self) -> list[str]:
        return self.state.names


class Count(msgspec.Struct):
    sent: int = 0


class Speaker(Entity[Count], retry=QUICKLY):
    @rpc
    async def say(self, to: list[str], names: list[str]) -> list[str]:
        """Every name to everybody; the ids of the messages."""
        ids: list[str] = []
        for name in names:
            for id in to:
                receipt = await self.cluster.entity(Listener, id).hear.send(name)
                ids.append(receipt.message_id)
        self.state.sent += len(ids)
        return ids

    @rpc
    async def say_and_fail(self, to: str) -> None:
        await self.cluster.entity(Listener, to).hear.send("never")
        raise ValueError("after sending")

    @rpc
    async def say_later(self, to: str, seconds: float) -> str:
        later = self.cluster.entity(Listener, to).hear.options(delay=timedelta(seconds=seconds))
        return str((await later.send("later")).message_id)

    @rpc
    async def say_once(self, to: str, key: str) -> str:
        call = self.cluster.entity(Listener, to).hear.options(idempotency_key=key)
        return str((await call.send(key)).message_id)

    @rpc
    async def count_down(self, left: int) -> None:
        """Send to oneself, in the turn's commit."""
        self.state.sent += 1
        if left:
            await self.count_down.send(left - 1)

    @rpc(readonly=True)
    async def sent(self) -> int:
        return self.state.sent


class Patient(Entity[Count], retry=Retry(base=timedelta(milliseconds=1), max_attempts=2)):
    @rpc
    async def ask_what_was_sent(self, to: str) -> list[str]:
        """What this turn sends is not there yet when it asks."""
        listener = self.cluster.entity(Listener, to)
        await listener.hear.send("staged")
        return await listener.heard()


async def test_sends_leave_with_the_commit(make_cluster: MakeCluster) -> None:
    async with make_cluster(Speaker, Listener) as cluster:
        speaker = cluster.entity(Speaker, "s")
        names = [str(number) for number in range(20)]
        ids = await speaker.say(["a", "b"], names)
        assert len(set(ids)) == 40
        for id in ("a", "b"):
            listener = cluster.entity(Listener, id)
            heard = await until(partial(all_of, listener, 20))
            assert heard == names  # in order
        assert await cluster.receipt(ids[-1], int).result() == 20
        assert await speaker.sent() == 40


async def all_of(listener: Any, count: int) -> list[str]:
    heard: list[str] = await listener.heard()
    return heard if len(heard) >= count else []


async def test_a_turn_that_raises_sends_nothing(make_cluster: MakeCluster) -> None:
    async with make_cluster(Speaker, Listener) as cluster:
        speaker, listener = cluster.entity(Speaker, "s"), cluster.entity(Listener, "a")
        with pytest.raises(HandlerFailedError, match="after sending"):
            await speaker.say_and_fail("a")
        await speaker.say(["a"], ["first"])
        assert await until(lambda: all_of(listener, 1)) == ["first"]


async def test_what_is_staged_is_not_there_yet(make_cluster: MakeCluster) -> None:
    async with make_cluster(Patient, Listener) as cluster:
        assert await cluster.entity(Patient, "p").ask_what_was_sent("a") == []
        listener = cluster.entity(Listener, "a")
        assert await until(lambda: all_of(listener, 1)) == ["staged"]


async def test_128_sends_and_no_more(make_cluster: MakeCluster) -> None:
    async with make_cluster(Speaker, Listener) as cluster:
        speaker, listener = cluster.entity(Speaker, "s"), cluster.entity(Listener, "a")
        with pytest.raises(HandlerFailedError) as caught:
            await speaker.say(["a"], [str(number) for number in range(129)])
        assert caught.value.remote_type == "MailboxFullError"
        assert await speaker.sent() == 0
        await speaker.say(["a"], [str(number) for number in range(128)])
        assert len(await until(lambda: all_of(listener, 128))) == 128
        assert await speaker.sent() == 128


async def test_an_outbox_that_is_full_fails_the_turn(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redis_cluster_kit.runtime.commit.CAPACITY", 3)
    async with make_cluster(Speaker, Listener) as cluster:
        speaker = cluster.entity(Speaker, "s")
        with pytest.raises(HandlerFailedError) as caught:
            await speaker.say(["a"], ["1", "2", "3", "4"])
        assert caught.value.remote_type == "MailboxFullError"
        assert len(await speaker.say(["a"], ["1", "2", "3"])) == 3
        assert await speaker.sent() == 3


async def test_a_delay_inside_a_turn(make_cluster: MakeCluster) -> None:
    async with make_cluster(Speaker, Listener) as cluster:
        speaker = cluster.entity(Speaker, "s")
        id = await speaker.say_later("a", 3600)
        keys = keys_of(cluster, Listener, "a")
        runner = cluster.joined_runner()

        async def is_scheduled() -> bool:
            return bool(await runner.commands.call(keys.slot, "ZCARD", keys.scheduled))

        await until(is_scheduled)
        assert await cluster.cancel(id)
        soon = await speaker.say_later("a", 0.05)
        assert await cluster.receipt(soon, int).result() == 1


async def test_a_key_inside_a_turn_is_the_same_key_outside(make_cluster: MakeCluster) -> None:
    async with make_cluster(Speaker, Listener) as cluster:
        speaker, listener = cluster.entity(Speaker, "s"), cluster.entity(Listener, "a")
        first = await speaker.say_once("a", "k")
        assert await cluster.receipt(first, int).result() == 1
        assert await listener.hear.options(idempotency_key="k")("k") == 1
        assert await speaker.say_once("a", "k") == first
        await speaker.say(["a"], ["last"])
        assert await until(lambda: all_of(listener, 2)) == ["k", "last"]


async def test_a_message_to_oneself_is_committed_with_the_turn(make_cluster: MakeCluster) -> None:
    async with make_cluster(Speaker) as cluster:
        speaker = cluster.entity(Speaker, "s")
        await speaker.count_down(5)

        async def is_done() -> bool:
            return await speaker.sent() == 6

        await until(is_done)


class Small(Entity[None], mailbox_capacity=1):
    is_open = True
    heard: list[str]

    @rpc
    async def hear(self, name: str) -> str:
        Small.heard.append(name)
        await until(lambda: Small.is_open)
        return name


class Forward(Entity[None]):
    @rpc
    async def pass_on(self, small: str, listener: str) -> None:
        for name in ("1", "2", "3"):
            await self.cluster.entity(Small, small).hear.send(name)
        await self.cluster.entity(Listener, listener).hear.send("through")


async def test_a_full_target_holds_up_its_own_line_only(make_cluster: MakeCluster) -> None:
    settings = quick(shards=ShardSettings(per_group=1, partitions=1))
    async with make_cluster(Forward, Small, Listener, settings=settings) as cluster:
        Small.is_open, Small.heard = False, []
        await cluster.entity(Forward, "f").pass_on("x", "a")
        listener = cluster.entity(Listener, "a")
        assert await until(lambda: all_of(listener, 1)) == ["through"]
        assert Small.heard == ["1"]
        Small.is_open = True
        await until(lambda: Small.heard == ["1", "2", "3"])  # in order, none lost
