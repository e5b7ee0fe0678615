"""Messages for later: delivered at their time and in order, withdrawn, and there after a hand-off."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import pytest

from redis_cluster_kit import Cluster, Entity, MailboxFullError, SendTimeoutError, UnknownError, rpc
from redis_cluster_kit.clock import MovableClock
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, host_of, mailboxes_of, owns_all

HOUR = timedelta(hours=1)


class Log(msgspec.Struct):
    names: list[str] = []


class Diary(Entity[Log], mailbox_capacity=2):
    @rpc
    async def note(self, name: str) -> float:
        self.state.names.append(name)
        return time.time()

    @rpc(readonly=True)
    async def names(self) -> list[str]:
        return self.state.names


class Gated(Entity[None], mailbox_capacity=2):
    gate: asyncio.Event
    heard: list[str]

    @rpc
    async def hear(self, name: str) -> None:
        Gated.heard.append(name)
        await Gated.gate.wait()


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


def advance(cluster: Cluster, clock: MovableClock, by: timedelta) -> None:
    clock.advance(by)
    host_of(cluster).clock_moved()


async def has(cluster: Cluster, id: str, names: list[str]) -> bool:
    try:
        return await cluster.entity(Diary, id).names() == names
    except MailboxFullError:
        return False


async def test_a_delay(make_cluster: MakeCluster) -> None:
    async with make_cluster(Diary) as cluster:
        diary = cluster.entity(Diary, "d")
        sent = time.time()
        receipt = await diary.note.options(delay=timedelta(milliseconds=150)).send("a")
        ran = await receipt.result()
        assert 0.1 <= ran - sent < 30  # never early; the benchmark looks at how late


async def test_an_instant_and_one_that_has_passed(make_cluster: MakeCluster) -> None:
    async with make_cluster(Diary) as cluster:
        diary = cluster.entity(Diary, "d")
        when = datetime.now(UTC) + timedelta(milliseconds=150)
        ran = await (await diary.note.options(deliver_at=when).send("a")).result()
        assert ran >= when.timestamp() - 0.001
        passed = datetime.now(UTC) - HOUR
        await (await diary.note.options(deliver_at=passed).send("b")).result()
        assert await diary.names() == ["a", "b"]


async def test_it_waits_for_its_time_and_not_longer(make_cluster: MakeCluster, clock: MovableClock) -> None:
    async with make_cluster(Diary).with_clock(clock) as cluster:
        diary = cluster.entity(Diary, "d")
        receipt = await diary.note.options(delay=HOUR).send("a")
        advance(cluster, clock, timedelta(minutes=59))
        await cluster.poll()
        assert await diary.names() == []
        advance(cluster, clock, timedelta(minutes=2))
        await receipt.result()
        assert await diary.names() == ["a"]


async def test_order_is_by_time_and_at_equal_times_as_they_came(
    make_cluster: MakeCluster, clock: MovableClock
) -> None:
    async with make_cluster(Diary).with_clock(clock) as cluster:
        diary = cluster.entity(Diary, "d")
        when = clock.utcnow() + 2 * HOUR
        for name in ("c", "d", "e", "f", "g"):
            await diary.note.options(deliver_at=when).send(name)
        await diary.note.options(deliver_at=when - HOUR).send("a")
        await diary.note.options(deliver_at=when - timedelta(minutes=1)).send("b")
        advance(cluster, clock, 3 * HOUR)
        await until(lambda: has(cluster, "d", list("abcdefg")))


async def test_many_due_at_once(make_cluster: MakeCluster, clock: MovableClock) -> None:
    """More than one list of them, for several entities, through mailboxes of two."""
    async with make_cluster(Diary).with_clock(clock) as cluster:
        names = [str(number) for number in range(40)]
        for name in names:
            for id in ("x", "y", "z"):
                await cluster.entity(Diary, id).note.options(delay=HOUR).send(name)
        advance(cluster, clock, 2 * HOUR)
        for id in ("x", "y", "z"):
            await until(partial(has, cluster, id, names), timeout=30)


async def test_a_full_mailbox_holds_up_its_own_schedule_only(
    make_cluster: MakeCluster, clock: MovableClock
) -> None:
    Gated.gate, Gated.heard = asyncio.Event(), []
    async with make_cluster(Gated, Diary).with_clock(clock) as cluster:
        gated = cluster.entity(Gated, "g")
        for name in ("a", "b"):
            await gated.hear.send(name)
        await gated.hear.options(delay=HOUR).send("c")
        ids = [str(number) for number in range(12)]
        for id in ids:  # in every shard
            await cluster.entity(Diary, id).note.options(delay=HOUR).send("due")
        advance(cluster, clock, 2 * HOUR)
        for id in ids:
            await until(partial(has, cluster, id, ["due"]))
        assert Gated.heard == ["a"]
        Gated.gate.set()
        await until(lambda: Gated.heard == ["a", "b", "c"])


async def test_a_backlog_moves_as_fast_as_its_mailbox_empties(
    make_cluster: MakeCluster, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the retry nor the poll is waited for: a commit makes room, and the next ones come at once."""
    monkeypatch.setattr("redis_cluster_kit.runtime.timers._RETRY_FULL", 1_000)
    monkeypatch.setattr("redis_cluster_kit.runtime.shard_host.POLL_EVERY", 1_000)
    async with make_cluster(Diary).with_clock(clock) as cluster:
        diary = cluster.entity(Diary, "d")
        await diary.note("first")
        names = [f"n{number}" for number in range(30)]
        for name in names:
            await diary.note.options(delay=HOUR).send(name)
        advance(cluster, clock, 2 * HOUR)
        await until(partial(has, cluster, "d", ["first", *names]), timeout=30)


async def test_withdrawn_it_never_comes(make_cluster: MakeCluster, clock: MovableClock) -> None:
    async with make_cluster(Diary).with_clock(clock) as cluster, make_cluster(hosting=False) as other:
        diary = cluster.entity(Diary, "d")
        receipt = await diary.note.options(delay=HOUR).send("never")
        kept = await diary.note.options(delay=HOUR).send("kept")
        assert await other.cancel(receipt.message_id)
        assert await other.cancel(receipt.message_id)  # it still is
        advance(cluster, clock, 2 * HOUR)
        await kept.result()
        assert await diary.names() == ["kept"]
        with pytest.raises(UnknownError):
            await receipt.result()


async def test_it_survives_a_hand_off(make_cluster: MakeCluster) -> None:
    async with make_cluster(Diary) as first:
        receipt = await first.entity(Diary, "d").note.options(delay=timedelta(seconds=0.5)).send("a")
        due = time.time() + 0.5
    async with make_cluster(Diary) as second:
        ran = await second.receipt(receipt.message_id, float).result()
        assert ran >= due - 0.1
        assert await second.entity(Diary, "d").names() == ["a"]


async def test_it_is_served_wherever_its_shard_goes(make_cluster: MakeCluster) -> None:
    async with make_cluster(Diary) as first:
        ids = [str(number) for number in range(12)]
        receipts = [
            await first.entity(Diary, id).note.options(delay=timedelta(seconds=0.7)).send("a") for id in ids
        ]
        async with make_cluster(Diary) as second:
            await until(lambda: owns_all(first, second))
            for receipt in receipts:
                await receipt.result()
            assert all([await has(second, id, ["a"]) for id in ids])


async def test_an_ask_for_later_waits_from_then_on(make_cluster: MakeCluster) -> None:
    async with make_cluster(Diary) as cluster:
        diary = cluster.entity(Diary, "d")
        sent = time.time()
        ran = await diary.note.options(delay=timedelta(seconds=0.4), timeout=5)("a")
        assert ran - sent >= 0.35


async def test_a_receipt_s_timeout_says_that_it_is_scheduled(make_cluster: MakeCluster) -> None:
    async with make_cluster(Diary) as cluster:
        receipt = await cluster.entity(Diary, "d").note.options(delay=HOUR).send("b")
        with pytest.raises(SendTimeoutError, match="scheduled"):
            await receipt.result(timeout=0.05)


async def test_a_lookup_says_when(make_cluster: MakeCluster) -> None:
    async with make_cluster(Diary) as cluster:
        receipt = await cluster.entity(Diary, "d").note.options(delay=HOUR).send("a")
        found = await mailboxes_of(cluster).lookup(
            cluster.shard_of(Diary, "d"), "Diary:d", receipt.message_id.partition("@")[0]
        )
        assert found.word == "scheduled"
        assert abs(found.due / 1000 - time.time() - 3600) < 60
