"""Batches: what one loop turn calls goes as one command, and each call hears of itself alone."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from redis_cluster_kit.embedded import RedisClusterServers, RedisServer
from redis_cluster_kit.errors import Execution, PersistenceFailedError
from redis_cluster_kit.redis_access import Batches, Keyspace, Lanes, Outcome, RedisUrl, Script
from redis_cluster_kit.redis_access.batches import LARGE, MOST
from redis_cluster_kit.settings import RedisSettings
from redis_cluster_kit.testing import Proxy, command

TEXT = """#!lua
-- purpose: counts calls, odd amounts not
-- key counter (string): the sum
-- arg amount (integer): how much
-- returns ok sum: counted
-- refuses odd: odd amounts are not added
-- repeat: safe, for this test
if amount % 2 == 1 then
  return { 'odd' }
end
return { 'ok', redis.call('INCRBY', counter, amount) }
"""
ADD = Script("sum/add", TEXT, {})


def call(batches: Batches, keyspace: Keyspace, amount: int, *, partition: int = 0) -> asyncio.Task[Outcome]:
    key = keyspace.values(partition)
    slot = keyspace.slots[partition]
    return asyncio.create_task(_run(batches, slot, key, amount))


async def _run(batches: Batches, slot: int, key: str, amount: int) -> Outcome:
    return await batches.call(slot, (key,), (amount,))


SAVE = Script(
    "sum/save",
    TEXT.replace("amount (integer)", "text (bytes)")
    .replace("(string): the sum", "(list): what was saved")
    .replace("if amount % 2 == 1 then\n  return { 'odd' }\nend\n", "")
    .replace("redis.call('INCRBY', counter, amount)", "redis.call('RPUSH', counter, text)"),
    {},
)


def save(batches: Batches, keyspace: Keyspace, word: Any, *, size: int = 0) -> asyncio.Task[Outcome]:
    call = batches.call(keyspace.slots[0], (keyspace.values(0),), (word,), size=size)
    return asyncio.get_running_loop().create_task(call)


def commands(server: RedisServer) -> dict[str, int]:
    with server.connect() as client:
        found = client.info("commandstats")
    counts = {
        name: re.findall(r"calls=(\d+)", found.get(f"cmdstat_{name}", "")) for name in ("eval", "evalsha")
    }
    return {name: int(calls[0]) if calls else 0 for name, calls in counts.items()}


async def opened(keyspace: Keyspace, batches: Batches) -> None:
    """Without a connection calls go alone: this opens those of all partitions."""
    for partition in range(keyspace.partitions):
        await call(batches, keyspace, 0, partition=partition)
        await asyncio.gather(*(call(batches, keyspace, 0, partition=partition) for _ in range(2)))


async def test_calls_of_one_loop_turn_go_as_one_command(private_valkey: RedisServer, namespace: str) -> None:
    keyspace = Keyspace(namespace, 4)
    async with Lanes(RedisUrl.parse(private_valkey.url), RedisSettings()) as lanes:
        batches = Batches(lanes, ADD)
        await opened(keyspace, batches)
        before = commands(private_valkey)
        calls = [call(batches, keyspace, amount, partition=amount % 2) for amount in (2, 3, 4, 6)]
        outcomes = await asyncio.gather(*calls)
        after = commands(private_valkey)
    assert [outcome.word for outcome in outcomes] == ["ok", "odd", "ok", "ok"]
    assert [outcome.fields for outcome in outcomes if outcome.fields] == [
        (2,),
        (6,),
        (12,),
    ]
    assert after == before | {"evalsha": before["evalsha"] + 1}


async def test_a_batch_is_bounded(private_valkey: RedisServer, namespace: str) -> None:
    keyspace = Keyspace(namespace, 1)
    async with Lanes(RedisUrl.parse(private_valkey.url), RedisSettings()) as lanes:
        batches = Batches(lanes, ADD)
        await opened(keyspace, batches)
        before = commands(private_valkey)["evalsha"]
        outcomes = await asyncio.gather(*(call(batches, keyspace, 2) for _ in range(2 * MOST + 2)))
        assert commands(private_valkey)["evalsha"] == before + 3
    assert [outcome.fields[0] for outcome in outcomes] == list(range(2, 4 * MOST + 5, 2)), "in order"


async def test_on_a_cluster_a_batch_stays_within_a_slot(
    valkey_cluster: RedisClusterServers, namespace: str
) -> None:
    keyspace = Keyspace(namespace, 16)
    async with Lanes(RedisUrl.parse(valkey_cluster.url), RedisSettings()) as lanes:
        batches = Batches(lanes, ADD)
        await opened(keyspace, batches)
        calls = [call(batches, keyspace, 2, partition=place % 16) for place in range(48)]
        outcomes = await asyncio.gather(*calls)
    assert [outcome.fields[0] for outcome in outcomes] == [2] * 16 + [4] * 16 + [6] * 16


async def test_a_call_that_stops_at_an_error_harms_no_other(
    private_valkey: RedisServer, namespace: str
) -> None:
    keyspace = Keyspace(namespace, 2)
    async with Lanes(RedisUrl.parse(private_valkey.url), RedisSettings()) as lanes:
        batches = Batches(lanes, ADD)
        await opened(keyspace, batches)
        await lanes.call(keyspace.slots[1], "SET", keyspace.values(1), "no number")
        calls = [call(batches, keyspace, 2, partition=place) for place in (0, 1, 0)]
        first, wrong, last = await asyncio.gather(*calls, return_exceptions=True)
    assert (first, last) == (Outcome("ok", (2,)), Outcome("ok", (4,)))
    assert isinstance(wrong, PersistenceFailedError)
    assert wrong.execution is Execution.UNKNOWN
    assert not wrong.is_retryable
    assert "not an integer" in wrong.detail


@pytest.mark.parametrize("word", [None, "\ud800", ["text"]], ids=["none", "surrogate", "list"])
@pytest.mark.parametrize("number", [3, MOST + 1])
async def test_a_word_that_cannot_be_packed_fails_its_own_call(
    private_valkey: RedisServer, namespace: str, word: Any, number: int
) -> None:
    keyspace = Keyspace(namespace, 1)
    async with Lanes(RedisUrl.parse(private_valkey.url), RedisSettings()) as lanes:
        batches = Batches(lanes, SAVE)
        await save(batches, keyspace, "first")
        words = ["a", word, *("b" for _ in range(number - 2))]
        calls = [save(batches, keyspace, one) for one in words]
        async with asyncio.timeout(10):
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            alone = await asyncio.gather(save(batches, keyspace, word), return_exceptions=True)
    assert isinstance(outcomes[1], (TypeError, UnicodeEncodeError))
    assert type(alone[0]) is type(outcomes[1])
    good = [outcome.fields[0] for outcome in outcomes if isinstance(outcome, Outcome)]
    assert good == list(range(2, number + 1)), "in order"


async def test_a_large_call_goes_by_itself_and_in_its_place(
    private_valkey: RedisServer, namespace: str
) -> None:
    keyspace = Keyspace(namespace, 1)
    async with Lanes(RedisUrl.parse(private_valkey.url), RedisSettings()) as lanes:
        batches = Batches(lanes, SAVE)
        await save(batches, keyspace, "first")
        await asyncio.gather(*(save(batches, keyspace, "second") for _ in range(2)))
        before = commands(private_valkey)["evalsha"]
        words = ["a", "b", "c" * (LARGE + 1), "d", "e"]
        outcomes = await asyncio.gather(*(save(batches, keyspace, word, size=len(word)) for word in words))
        assert commands(private_valkey)["evalsha"] == before + 3
    assert [outcome.fields[0] for outcome in outcomes] == [4, 5, 6, 7, 8], "in order"


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "untold"])
async def test_what_the_server_finds_too_large_fails_alone(namespace: str, is_told: bool) -> None:
    keyspace = Keyspace(namespace, 1)
    with RedisServer.start(extra=("--proto-max-bulk-len", "1mb")) as server:
        async with Lanes(RedisUrl.parse(server.url), RedisSettings()) as lanes:
            batches = Batches(lanes, SAVE)
            await save(batches, keyspace, "first")
            words = ["a", "b", "c" * 2_000_000, "d"]
            calls = [save(batches, keyspace, word, size=len(word) if is_told else 0) for word in words]
            async with asyncio.timeout(30):
                *good, large, last = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(large, PersistenceFailedError)
        assert all(isinstance(outcome, Outcome) for outcome in (*good, last))
        saved = server.call("LRANGE", keyspace.values(0), 0, -1)
    assert isinstance(saved, list)
    assert set(saved) == {"first", "a", "b", "d"}


async def test_a_lost_reply_makes_each_repeat_itself(private_valkey: RedisServer, namespace: str) -> None:
    keyspace = Keyspace(namespace, 1)
    async with (
        Proxy.to("127.0.0.1", private_valkey.port) as proxy,
        Lanes(RedisUrl.parse(proxy.url()), RedisSettings()) as lanes,
    ):
        batches = Batches(lanes, ADD)
        await opened(keyspace, batches)
        lost = proxy.lose_reply(command("EVALSHA", sha=ADD.in_batches().sha))
        outcomes = await asyncio.gather(*(call(batches, keyspace, 2) for _ in range(3)))
        lost.assert_fired(1)
    assert [outcome.fields for outcome in outcomes] == [(8,), (10,), (12,)]


async def test_doubt_stays_when_the_repeat_is_refused(private_valkey: RedisServer, namespace: str) -> None:
    keyspace = Keyspace(namespace, 1)
    async with (
        Proxy.to("127.0.0.1", private_valkey.port) as proxy,
        Lanes(RedisUrl.parse(proxy.url()), RedisSettings()) as lanes,
    ):
        batches = Batches(lanes, ADD)
        await opened(keyspace, batches)
        lost = proxy.lose_reply(command("EVALSHA", sha=ADD.in_batches().sha))

        def fill(_: object) -> bool:
            if lost.count:
                private_valkey.call("CONFIG", "SET", "maxmemory", "1")
            return False

        proxy.lose_command(fill)
        calls = [call(batches, keyspace, 2) for _ in range(2)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        private_valkey.call("CONFIG", "SET", "maxmemory", "0")
        lost.assert_fired(1)
    for outcome in outcomes:
        assert isinstance(outcome, PersistenceFailedError)
        assert outcome.execution is Execution.UNKNOWN, "it had run"
    assert private_valkey.call("GET", keyspace.values(0)) == "4"


async def test_a_full_server_refuses_a_batch_before_it_runs(
    private_valkey: RedisServer, namespace: str
) -> None:
    keyspace = Keyspace(namespace, 1)
    allowed = Script("sum/add", TEXT.replace("#!lua", "#!lua flags=allow-oom"), {})
    async with Lanes(RedisUrl.parse(private_valkey.url), RedisSettings()) as lanes:
        batches, others = Batches(lanes, ADD), Batches(lanes, allowed)
        for some in (batches, others):
            await opened(keyspace, some)
        private_valkey.call("CONFIG", "SET", "maxmemory", "1")
        calls = [call(batches, keyspace, 2) for _ in range(2)]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, PersistenceFailedError)
            assert outcome.execution is Execution.NOT_EXECUTED
        outcomes = await asyncio.gather(*(call(others, keyspace, 2) for _ in range(2)))
        private_valkey.call("CONFIG", "SET", "maxmemory", "0")
    assert [outcome.fields[0] for outcome in outcomes] == [2, 4]


async def test_a_server_that_forgot_the_script_gets_its_text(
    private_valkey: RedisServer, namespace: str
) -> None:
    keyspace = Keyspace(namespace, 1)
    async with Lanes(RedisUrl.parse(private_valkey.url), RedisSettings()) as lanes:
        batches = Batches(lanes, ADD)
        await opened(keyspace, batches)
        private_valkey.call("SCRIPT", "FLUSH")
        before = commands(private_valkey)
        outcomes = await asyncio.gather(*(call(batches, keyspace, 2) for _ in range(3)))
        assert commands(private_valkey) == {"eval": before["eval"] + 1, "evalsha": before["evalsha"] + 1}
    assert [outcome.fields for outcome in outcomes] == [(2,), (4,), (6,)]


async def test_a_caller_that_went_away_leaves_the_others(private_valkey: RedisServer, namespace: str) -> None:
    keyspace = Keyspace(namespace, 1)
    async with Lanes(RedisUrl.parse(private_valkey.url), RedisSettings()) as lanes:
        batches = Batches(lanes, ADD)
        await opened(keyspace, batches)
        one, gone, other = (call(batches, keyspace, 2) for _ in range(3))
        await asyncio.sleep(0)
        gone.cancel()
        outcomes = await asyncio.gather(one, gone, other, return_exceptions=True)
    assert isinstance(outcomes[1], asyncio.CancelledError)
    assert [outcomes[0], outcomes[2]] == [Outcome("ok", (2,)), Outcome("ok", (6,))]


async def test_after_the_lanes_are_closed_calls_are_refused(
    private_valkey: RedisServer, namespace: str
) -> None:
    keyspace = Keyspace(namespace, 1)
    async with Lanes(RedisUrl.parse(private_valkey.url), RedisSettings()) as lanes:
        batches = Batches(lanes, ADD)
        await opened(keyspace, batches)
    for outcome in await asyncio.gather(
        *(call(batches, keyspace, 2) for _ in range(2)), return_exceptions=True
    ):
        assert isinstance(outcome, PersistenceFailedError)
        assert outcome.execution is Execution.NOT_EXECUTED


def test_only_what_is_safe_to_repeat_goes_in_batches() -> None:
    unsafe = Script("sum/add", TEXT.replace("-- repeat: safe,", "-- repeat: unsafe,"), {})
    with pytest.raises(ValueError, match="sum/add is not safe to repeat"):
        Batches(Lanes(RedisUrl.parse("redis://127.0.0.1:1"), RedisSettings()), unsafe)
