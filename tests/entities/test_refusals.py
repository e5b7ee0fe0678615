"""What a sender gets wrong is refused there, with a typed error, and nothing is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from redis_cluster_kit import (
    Entity,
    EntityAddress,
    HandlerFailedError,
    MailboxSettings,
    MalformedMessageError,
    PayloadTooLargeError,
    ShardId,
    rpc,
)
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.entity import RpcMethod

from .account import QUICKLY, Account
from .conftest import MakeCluster, quick, residents, stored_keys


class Anything(Entity[None], retry=QUICKLY):
    @rpc
    async def take(self, value: Any, text: str = "") -> int:
        return len(text)

    @rpc
    async def answer(self, size: int) -> str:
        return "x" * size


def deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


REFUSED: dict[str, tuple[Callable[[Any, Any], Awaitable[Any]], type[Exception]]] = {
    "a wrong type": (lambda account, _: account.deposit("ten"), MalformedMessageError),
    "None for a number": (lambda account, _: account.deposit(None), MalformedMessageError),
    "a wrong type by name": (lambda account, _: account.deposit(amount=1, note=2), MalformedMessageError),
    "too many": (lambda account, _: account.deposit(1, "a", 3), TypeError),
    "too few": (lambda account, _: account.deposit(), TypeError),
    "an unknown name": (lambda account, _: account.deposit(1, noet="a"), TypeError),
    "twice the same": (lambda account, _: account.deposit(1, amount=2), TypeError),
    "no such rpc": (lambda account, _: account.depposit(1), AttributeError),
    "no bytes of it": (lambda _, anything: anything.take(object()), MalformedMessageError),
    "a lone surrogate": (lambda _, anything: anything.take(0, "\ud800"), MalformedMessageError),
    "too large": (lambda _, anything: anything.take(0, "x" * 262_145), PayloadTooLargeError),
    "too deep": (lambda _, anything: anything.take(deep(65)), MalformedMessageError),
    "far too deep": (lambda _, anything: anything.take(deep(100_000)), MalformedMessageError),
}


@pytest.mark.parametrize("way", ["ask", "send", "with options"])
@pytest.mark.parametrize("case", REFUSED)
async def test_a_call_that_does_not_fit(
    make_cluster: MakeCluster, valkey: RedisServer, case: str, way: str
) -> None:
    call, expected = REFUSED[case]
    async with make_cluster(Account, Anything, hosting=False) as cluster:
        account: Any = _ByWay(cluster.entity(Account, "alice"), way)
        anything: Any = _ByWay(cluster.entity(Anything, "a"), way)
        with pytest.raises(expected):
            await call(account, anything)
        assert stored_keys(valkey, cluster) == set()


class _ByWay:
    """A proxy whose rpcs are called in another way."""

    def __init__(self, proxy: Any, way: str) -> None:
        self._proxy, self._way = proxy, way

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._proxy, name)
        if self._way == "ask":
            return found
        return found.send if self._way == "send" else found.options(delay=timedelta(hours=1)).send


async def test_what_just_fits_is_sent(make_cluster: MakeCluster) -> None:
    async with make_cluster(Anything) as cluster:
        anything = cluster.entity(Anything, "a")
        assert await anything.take(0, "x" * 262_000) == 262_000
        assert await anything.take(deep(60)) == 0


async def test_an_answer_that_is_too_large_is_a_failure(make_cluster: MakeCluster) -> None:
    async with make_cluster(Anything) as cluster:
        anything = cluster.entity(Anything, "a")
        assert len(await anything.answer(262_000)) == 262_000
        with pytest.raises(HandlerFailedError) as caught:
            await anything.answer(262_145)
        assert caught.value.remote_type == "PayloadTooLargeError"


async def test_an_rpc_of_nobody(make_cluster: MakeCluster, valkey: RedisServer) -> None:
    async with make_cluster(Account, hosting=False) as cluster:
        address = EntityAddress("account", "alice", ShardId("default", 0))
        with pytest.raises((KeyError, ValueError)):
            await cluster.send(address, RpcMethod(Account, "no-such"), 1)
        assert stored_keys(valkey, cluster) == set()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "alice",
        "0123456789ab-1",
        "0123456789ab-1@default:account",
        "0123456789ab-x@default:account:alice",
        "0123456789ab-1@default:account:",
    ],
)
async def test_a_message_id_that_is_none(make_cluster: MakeCluster, text: str) -> None:
    async with make_cluster(hosting=False) as cluster:
        with pytest.raises(ValueError, match=r"message id|entity id"):
            cluster.receipt(text, int)
        with pytest.raises(ValueError, match=r"message id|entity id"):
            await cluster.cancel(text)


async def test_payload_limit_is_a_setting(make_cluster: MakeCluster) -> None:
    settings = quick(mailbox=MailboxSettings(payload_limit=1_024))
    async with make_cluster(Anything, settings=settings) as cluster:
        anything = cluster.entity(Anything, "a")
        assert await anything.take(0, "x" * 900) == 900
        with pytest.raises(PayloadTooLargeError):
            await anything.take(0, "x" * 1_024)
        assert residents(cluster) == 1
