"""One reply or one command is lost, the one that was meant, and the rule says so."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, TypeAlias

import pytest
import redis.asyncio
from redis.exceptions import ConnectionError as LostError
from redis.exceptions import NoScriptError
from redis.exceptions import TimeoutError as LateError

from redis_cluster_kit.testing import FaultNeverFiredError, Proxy, Rule, command, until

Client: TypeAlias = Any
ClientOf: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]
ADD = "return redis.call('XADD', KEYS[1], '*', 'a', ARGV[1])"


async def test_one_lost_reply_duplicates_under_the_clients_default_retries(
    proxy: Proxy, key: str, direct: Client
) -> None:
    """The positive control: without our retry settings this fault is seen as two entries."""
    default = redis.asyncio.Redis(host=proxy.host, port=proxy.port)  # `from_url` does not retry
    rule = proxy.lose_reply(command("XADD"))
    try:
        await default.xadd(key, {"a": "1"})
    finally:
        await default.aclose()
    assert rule.count == 1
    assert await direct.xlen(key) == 2


@pytest.mark.parametrize("then", ["reset", "close", "silent"])
async def test_one_lost_reply_without_retries_is_one_entry(
    proxy: Proxy, key: str, direct: Client, then: Literal["reset", "close", "silent"], client_of: ClientOf
) -> None:
    expected = LateError if then == "silent" else LostError
    async with client_of(proxy.url(), socket_timeout=0.3) as client:
        rule = proxy.lose_reply(command("XADD"), then=then)
        with pytest.raises(expected):
            await client.xadd(key, {"a": "1"})
        assert rule.count == 1
        assert proxy.fired == 1
        assert await direct.xlen(key) == 1
        await client.xadd(key, {"a": "2"})
    assert rule.count == 1
    assert await direct.xlen(key) == 2


async def test_the_kth_match_is_lost_and_earlier_replies_arrive(
    proxy: Proxy, client: Client, key: str, direct: Client
) -> None:
    rule = proxy.lose_reply(command("incrby"), nth=3)
    assert [await client.incr(key), await client.get(key), await client.incr(key)] == [1, b"1", 2]
    with pytest.raises(LostError):
        await client.incr(key)
    assert rule.count == 1
    assert await client.incr(key) == 4


async def test_a_loss_inside_a_pipeline_gives_the_replies_before_it(
    proxy: Proxy, key: str, direct: Client
) -> None:
    rule = proxy.lose_reply(command("INCR"), nth=3, then="close")
    reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
    writer.write(f"INCR {key}\r\n".encode() * 5)
    assert await reader.read() == b":1\r\n:2\r\n"
    writer.close()
    await until(lambda: _equals(direct.get(key), b"5"))
    rule.assert_fired(1)
    assert rule.collateral <= 2


async def test_scripts_are_matched_by_sha_by_argument_and_when_they_ran(
    proxy: Proxy, client: Client, key: str, direct: Client
) -> None:
    await direct.script_flush()
    sha = _sha1(ADD)
    by_sha = proxy.lose_reply(command(sha=sha[:8]))
    with pytest.raises(NoScriptError):  # it did not run: not the reply to lose
        await client.evalsha(sha, 1, key, "x")
    assert by_sha.count == 0
    await client.eval("return 1", 0)
    with pytest.raises(LostError):
        await client.eval(ADD, 1, key, "x")
    assert by_sha.count == 1
    by_argument = proxy.lose_reply(command("EVALSHA", argument=(4, "second")))
    await client.evalsha(sha, 1, key, "first")
    with pytest.raises(LostError):
        await client.evalsha(sha, 1, key, "second")
    assert by_argument.count == 1
    assert await direct.xlen(key) == 3


def _sha1(script: str) -> str:
    return hashlib.sha1(script.encode()).hexdigest()


async def test_a_lost_command_never_ran(proxy: Proxy, client: Client, key: str, direct: Client) -> None:
    rule = proxy.lose_command(command("XADD"))
    with pytest.raises(LostError):
        await client.xadd(key, {"a": "1"})
    assert rule.count == 1
    assert await direct.xlen(key) == 0


async def test_a_lifted_loss_does_not_fire(proxy: Proxy, client: Client, key: str, direct: Client) -> None:
    with proxy.lose_reply(command("INCRBY")) as rule:
        pass
    assert await client.incr(key) == 1
    assert rule.count == proxy.fired == 0


async def test_two_losses_that_aim_at_one_command_take_one_each(
    proxy: Proxy, client: Client, key: str, direct: Client
) -> None:
    reply, lost_command = proxy.lose_reply(command("INCRBY")), proxy.lose_command(command("INCRBY"))
    for _ in range(2):
        with pytest.raises(LostError):
            await client.incr(key)
    proxy.assert_fired()
    assert (reply.count, lost_command.count) == (1, 1)
    assert await client.incr(key) == 2  # one of the two ran


async def test_any_predicate_may_choose_the_command(
    proxy: Proxy, client: Client, key: str, direct: Client
) -> None:
    rule = proxy.lose_reply(lambda frame: frame[0] == b"SET" and len(frame[2]) > 3)
    await client.set(key, "abc")
    with pytest.raises(LostError):
        await client.set(key, "abcd")
    rule.assert_fired(1)
    assert await direct.get(key) == b"abcd"


async def test_what_did_not_happen_is_told(proxy: Proxy, client: Client) -> None:
    with pytest.raises(AssertionError, match="no rule was ever set"):
        proxy.assert_fired()
    rule = proxy.lose_reply(command("GET"))
    await client.ping()
    with pytest.raises(FaultNeverFiredError, match=r"'lose reply' .* at least once, it happened 0"):
        rule.assert_fired()
    with pytest.raises(FaultNeverFiredError):
        proxy.assert_fired()
    rule.assert_fired(0)
    counted = Rule("counted")
    counted.count = 2
    counted.assert_fired()
    with pytest.raises(FaultNeverFiredError, match="exactly 1 times, it happened 2"):
        counted.assert_fired(1)


async def test_rules_that_cannot_happen_are_refused() -> None:
    plain = Proxy.to("127.0.0.1", 1, speaks="bytes")
    with pytest.raises(ValueError, match="no commands"):
        plain.lose_reply(command("GET"))
    with pytest.raises(ValueError, match="1 or more"):
        Proxy.to("127.0.0.1", 1).lose_reply(command("GET"), nth=0)
    with pytest.raises(ValueError, match="low <= high"):
        plain.delay(0.5, 0.05)


@pytest.mark.parametrize("protocol", [2, 3])
async def test_subscriptions_pass_and_do_not_confuse_the_pairing(
    proxy: Proxy, key: str, direct: Client, protocol: int, client_of: ClientOf
) -> None:
    async with client_of(proxy.url(), protocol=protocol) as client:
        listener = client.pubsub()
        await listener.subscribe(key)
        await client.publish(key, "hello")
        messages: list[bytes] = []
        async with asyncio.timeout(5):
            while not messages:
                got = await listener.get_message(ignore_subscribe_messages=True, timeout=1)
                messages += [got["data"]] if got else []
        assert messages == [b"hello"]
        rule = proxy.lose_reply(command("INCRBY"))
        with pytest.raises(LostError):
            await client.incr(key)
        assert rule.count == 1
        await listener.aclose()


async def _equals(awaitable: Awaitable[Any], value: Any) -> bool:
    return bool(await awaitable == value)
