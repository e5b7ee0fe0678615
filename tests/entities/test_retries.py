"""A handler that raises is tried again in its place, with pauses; then its message is a dead letter."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from redis_cluster_kit import (
    Cluster,
    DeadLetter,
    Entity,
    HandlerFailedError,
    MailboxFullError,
    Retry,
    SendTimeoutError,
    UnknownError,
    current,
    rpc,
)
from redis_cluster_kit.runtime.backoff import pause_after
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, host_of


class Log(msgspec.Struct):
    done: list[str] = []


class Flaky(
    Entity[Log],
    name="flaky",
    mailbox_capacity=3,
    retry=Retry(base=timedelta(milliseconds=2), factor=2, max_attempts=4),
):
    attempts: list[tuple[str, int]]
    broken: set[str]

    @rpc
    async def work(self, name: str) -> list[str]:
        """Fails until the last attempt, or always."""
        attempt = current().attempt
        Flaky.attempts.append((name, attempt))
        self.state.done.append(name)
        if name in Flaky.broken or (name.startswith("slow") and attempt < 4):
            raise ValueError(f"{name} at attempt {attempt}")
        return self.state.done

    @rpc(readonly=True)
    async def done(self) -> list[str]:
        return self.state.done


class Paced(Entity[None], retry=Retry(base=timedelta(milliseconds=80), factor=3, max_attempts=3)):
    times: list[float]

    @rpc
    async def work(self) -> None:
        Paced.times.append(asyncio.get_running_loop().time())
        raise ValueError


class Patient(Entity[None], retry=Retry(base=timedelta(hours=1), max_attempts=3)):
    attempts: list[int]

    @rpc
    async def work(self) -> str:
        Patient.attempts.append(current().attempt)
        if len(Patient.attempts) == 1:
            raise ValueError
        return "served elsewhere"


@pytest.fixture(autouse=True)
def fresh() -> None:
    Flaky.attempts, Flaky.broken, Paced.times, Patient.attempts = [], set(), [], []


async def test_it_is_tried_again_in_its_place(make_cluster: MakeCluster) -> None:
    async with make_cluster(Flaky) as cluster:
        flaky = cluster.entity(Flaky, "f")
        receipts = [await flaky.work.send(name) for name in ("a", "slow", "b")]
        assert await receipts[1].result() == ["a", "slow"]  # what failed attempts did is not there
        assert await receipts[2].result() == ["a", "slow", "b"]
        assert Flaky.attempts == [("a", 1), *(("slow", n) for n in range(1, 5)), ("b", 1)]
        assert host_of(cluster).counters.failures == 3


async def test_pauses_grow_and_are_jittered(make_cluster: MakeCluster) -> None:
    async with make_cluster(Paced) as cluster:
        with pytest.raises(HandlerFailedError):
            await cluster.entity(Paced, "p").work()
        first, second, third = Paced.times
        assert second - first >= 0.04  # half of the base at least
        assert third - second >= 0.12


async def test_retries_count_inside_the_timeout_and_go_on_after_it(make_cluster: MakeCluster) -> None:
    async with make_cluster(Paced) as cluster:
        with pytest.raises(SendTimeoutError):
            await cluster.entity(Paced, "p").work.options(timeout=0.03)()
        await until(lambda: len(Paced.times) == 3)


async def test_a_pause_does_not_hold_up_a_hand_off(make_cluster: MakeCluster) -> None:
    """The message waits for an hour here; its next owner tries it at once, and no failure is lost."""
    async with make_cluster(Patient) as first, make_cluster(hosting=False) as client:
        receipt = await client.entity(Patient, "p").work.send()
        await until(lambda: Patient.attempts == [1])
        await until(lambda: host_of(first).counters.failures == 1)
        first.begin_drain()
        async with make_cluster(Patient) as second:
            assert await receipt.result() == "served elsewhere"
            assert Patient.attempts == [1, 2]
            assert await second.dead_letters.list() == []


# --- Dead letters ---


async def bury(cluster: Cluster, id: str, *names: str) -> list[DeadLetter]:
    Flaky.broken.update(names)
    for name in names:
        with pytest.raises(HandlerFailedError):
            await cluster.entity(Flaky, id).work(name)
    return list(await cluster.dead_letters.list())


async def test_what_fails_too_often_is_a_dead_letter(make_cluster: MakeCluster) -> None:
    async with make_cluster(Flaky) as cluster, make_cluster(hosting=False) as other:
        flaky = cluster.entity(Flaky, "f")
        await flaky.work("before")
        (letter,) = await bury(cluster, "f", "bad")
        assert (letter.type, letter.entity_id, letter.rpc) == ("flaky", "f", "work")
        assert letter.error == "ValueError: bad at attempt 4"
        assert "in work" in letter.traceback
        assert (letter.failures, letter.deaths) == (4, 0)
        assert letter.runner_id == cluster.runner_id
        assert msgspec.msgpack.decode(letter.payload) == {"name": "bad"}
        assert letter.buried_at.utcoffset() == timedelta()
        with pytest.raises(HandlerFailedError, match="bad at attempt 4"):
            await other.receipt(letter.message_id, str).result()
        assert await flaky.done() == ["before"]
        assert [one.message_id for one in await other.dead_letters.list(type="flaky")] == [letter.message_id]
        assert await other.dead_letters.list(type="other") == []
        assert host_of(cluster).counters.buried == 1


async def test_they_are_listed_oldest_first_over_all_shards(make_cluster: MakeCluster) -> None:
    async with make_cluster(Flaky) as cluster:
        for number in range(8):
            letters = await bury(cluster, f"f{number}", f"bad{number}")
        assert [letter.entity_id for letter in letters] == [f"f{number}" for number in range(8)]


async def test_replayed_it_is_as_if_it_had_never_been_tried(make_cluster: MakeCluster) -> None:
    async with make_cluster(Flaky) as cluster, make_cluster(hosting=False) as other:
        (letter,) = await bury(cluster, "f", "bad")
        Flaky.attempts.clear()
        assert await other.dead_letters.replay(letter.message_id)
        await until(lambda: len(Flaky.attempts) == 4)  # all its attempts again
        await until(lambda: _has_letters(cluster, 1))
        Flaky.broken.clear()
        assert await other.dead_letters.replay(letter.message_id)
        await until(lambda: _has_letters(cluster, 0))
        assert await other.receipt(letter.message_id, list[str]).result() == ["bad"]
        assert not await other.dead_letters.replay(letter.message_id)


async def _has_letters(cluster: Cluster, count: int) -> bool:
    return len(await cluster.dead_letters.list()) == count


async def test_dropped_it_is_forgotten(make_cluster: MakeCluster) -> None:
    async with make_cluster(Flaky) as cluster:
        first, second = await bury(cluster, "f", "bad", "worse")
        assert await cluster.dead_letters.drop(first.message_id)
        assert not await cluster.dead_letters.drop(first.message_id)
        assert not await cluster.dead_letters.replay(first.message_id)
        assert [letter.message_id for letter in await cluster.dead_letters.list()] == [second.message_id]
        with pytest.raises(UnknownError):
            await cluster.receipt(first.message_id, str).result()
        assert not await cluster.cancel(second.message_id)


async def test_a_full_mailbox_refuses_a_replay_and_keeps_the_letter(make_cluster: MakeCluster) -> None:
    async with make_cluster(Flaky) as cluster:
        (letter,) = await bury(cluster, "f", "bad")
    async with make_cluster(hosting=False) as client:
        for name in "abc":
            await client.entity(Flaky, "f").work.send(name)
        with pytest.raises(MailboxFullError):
            await client.dead_letters.replay(letter.message_id)
        assert await _has_letters(client, 1)


@pytest.mark.parametrize("id", ["", "nonsense", "0123456789ab-1@nowhere:flaky:f"])
async def test_ids_that_are_none_are_refused(make_cluster: MakeCluster, id: str) -> None:
    async with make_cluster(hosting=False) as client:
        for act in (client.dead_letters.replay, client.dead_letters.drop):
            with pytest.raises(ValueError, match=r"message id|shard group"):
                await act(id)


async def test_what_waits_behind_a_dead_letter_is_handled_at_once(make_cluster: MakeCluster) -> None:
    """A burial claims nothing, and a mailbox that is not empty nudges nobody: the owner looks by itself."""
    async with make_cluster(Flaky) as cluster:
        Flaky.broken.add("bad")
        flaky = cluster.entity(Flaky, "f")
        for _ in range(10):
            await flaky.work.send("bad")
            assert "good" in await flaky.work("good")
        assert host_of(cluster).counters.rescued < 5  # on a machine that stalls the poll may come first


class Enduring(Entity[None], name="enduring", retry=Retry(base=timedelta(minutes=5), max_attempts=2)):
    @rpc
    async def work(self, name: str) -> str:
        if name == "bad":
            raise ValueError(name)
        return name


async def test_reset_ends_the_pause_before_the_next_attempt(make_cluster: MakeCluster) -> None:
    async with make_cluster(Enduring) as cluster:
        one = cluster.entity(Enduring, "x")
        await one.work.send("bad")
        await until(lambda: host_of(cluster).counters.failures == 1, what="the first failure")
        await cluster.reset(Enduring, "x")
        assert await one.work.options(timeout=10)("good") == "good"
        assert host_of(cluster).counters.failures == 1


@pytest.mark.parametrize("factor", [1, 2, 2.5, 100])
def test_pauses_grow_to_their_bound_however_many_failures_there_were(factor: float) -> None:
    def bounds(failures: int) -> tuple[float, float]:
        found = [pause_after(failures, base=0.2, factor=factor, longest=60.0) for _ in range(50)]
        return min(found), max(found)

    for failures in (1, 2, 3):
        exact = 0.2 * factor ** (failures - 1)
        low, high = bounds(failures)
        assert exact / 2 <= low <= high <= min(60.0, exact) * 1.0001 or exact > 60
    for failures in (155, 1_000, 2_000, 1_000_000):
        low, high = bounds(failures)
        assert high <= 60
        assert low >= (0.1 if factor == 1 else 30)
