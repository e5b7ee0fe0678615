"""What an error reply means, on texts that real servers gave, and on real servers where that is cheap."""

from __future__ import annotations

from typing import Any

import pytest
from hiredis import ReplyError

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.errors import Execution, PersistenceFailedError
from redis_cluster_kit.redis_access import Keyspace, Lanes, RedisUrl
from redis_cluster_kit.redis_access.failures import classify, doubtful, lost
from redis_cluster_kit.settings import RedisSettings

NOT, UNKNOWN, REFUSED = Execution.NOT_EXECUTED, Execution.UNKNOWN, Execution.REFUSED


@pytest.mark.parametrize(
    ("text", "execution", "is_retryable", "passes", "doubts_route"),
    [
        ("MOVED 3999 127.0.0.1:6381", NOT, True, True, True),
        ("ASK 3999 127.0.0.1:6381", NOT, True, True, False),
        ("TRYAGAIN Multiple keys request during rehashing of slot", NOT, True, True, False),
        ("CLUSTERDOWN Hash slot not served", NOT, True, True, True),
        ("LOADING Redis is loading the dataset in memory", NOT, True, True, False),
        ("MASTERDOWN Link with MASTER is down", NOT, True, True, True),
        ("READONLY You can't write against a read only replica.", NOT, True, True, True),
        ("BUSY Redis is busy running a script.", NOT, True, True, False),
        ("UNBLOCKED force unblock from blocking operation, instance state changed", NOT, True, True, True),
        ("ERR max number of clients reached", NOT, True, True, False),
        ("OOM command not allowed when used memory > 'maxmemory'.", NOT, True, False, False),
        ("MISCONF Redis is configured to save RDB snapshots", NOT, True, False, False),
        ("NOREPLICAS Not enough good replicas to write.", NOT, True, False, False),
        ("NOSCRIPT No matching script. Please use EVAL.", NOT, True, False, False),
        ("BUSYGROUP Consumer Group name already exists", REFUSED, False, False, False),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", REFUSED, False, False, False),
        ("NOPERM this user has no permissions", REFUSED, False, False, False),
        ("ERR unknown command 'X'", REFUSED, False, False, False),
        ("ERR boom script: 0a1b, on @user_script:3.", UNKNOWN, False, False, False),
        ("WRONGTYPE Operation script: 0a1b, on @user_script:3.", UNKNOWN, False, False, False),
        ("OOM command not allowed script: 0a1b, on @user_script:3.", UNKNOWN, False, False, False),
        ("BUSY in the middle script: 0a1b, on @user_script:3.", UNKNOWN, False, False, False),
    ],
)
def test_error_replies(
    text: str, execution: Execution, is_retryable: bool, passes: bool, doubts_route: bool
) -> None:
    found = classify(ReplyError(text))
    error = found.to_error()
    assert (found.passes, found.doubts_route) == (passes, doubts_route)
    assert (error.store, error.execution, error.is_retryable) == ("redis", execution, is_retryable)
    assert error.detail == text


@pytest.mark.parametrize(
    ("text", "is_demoted"),
    [("READONLY x", True), ("MASTERDOWN x", True), ("MOVED 1 a:1", False), ("LOADING x", False)],
)
def test_which_replies_come_from_a_former_primary(text: str, is_demoted: bool) -> None:
    assert classify(ReplyError(text)).is_demoted is is_demoted


@pytest.mark.parametrize("execution", list(Execution))
def test_a_later_failure_does_not_undo_an_earlier_doubt(execution: Execution) -> None:
    error = lost(execution, "no route", OSError("gone"))
    doubted = doubtful(error)
    assert doubted.execution is UNKNOWN
    assert doubted.is_retryable is error.is_retryable
    assert "no route" in doubted.detail


@pytest.fixture
def keyspace(namespace: str) -> Keyspace:
    return Keyspace(namespace, 1)


async def _error(lanes: Lanes, keyspace: Keyspace, *words: Any) -> PersistenceFailedError:
    with pytest.raises(PersistenceFailedError) as caught:
        await lanes.call(keyspace.home_slot, *words)
    return caught.value


async def test_real_servers_say_it_in_these_words(redis_server: Any, keyspace: Keyspace) -> None:
    async with Lanes(RedisUrl.parse(redis_server.url), RedisSettings()) as lanes:
        await lanes.call(keyspace.home_slot, "SET", keyspace.born, "text")
        unknown = await _error(lanes, keyspace, "NOSUCHCOMMAND")
        wrong = await _error(lanes, keyspace, "HGET", keyspace.born, "field")
        missing = await _error(lanes, keyspace, "EVALSHA", "0" * 40, 1, keyspace.born)
        body = "redis.call('SET', KEYS[1], 'half'); return redis.call('HGET', KEYS[1], 'f')"
        stopped = await _error(lanes, keyspace, "EVAL", f"#!lua\n{body}", 1, keyspace.born)
        assert await lanes.call(keyspace.home_slot, "GET", keyspace.born) == b"half"
    executions = [error.execution for error in (unknown, wrong, missing, stopped)]
    assert executions == [REFUSED, REFUSED, NOT, UNKNOWN]


async def test_a_full_server_refuses_before_anything_runs(
    private_valkey: RedisServer, namespace: str
) -> None:
    keyspace = Keyspace(namespace, 1)
    private_valkey.call("CONFIG", "SET", "maxmemory", "1")
    async with Lanes(RedisUrl.parse(private_valkey.url), RedisSettings()) as lanes:
        plain = await _error(lanes, keyspace, "SET", keyspace.born, "1")
        text = "#!lua\nreturn redis.call('SET', KEYS[1], '1')"
        script = await _error(lanes, keyspace, "EVAL", text, 1, keyspace.born)
    assert [error.execution for error in (plain, script)] == [NOT, NOT]
    assert plain.is_retryable
    assert script.is_retryable
    assert private_valkey.call("EXISTS", keyspace.born) == 0
