"""The ACL lines of the how-to page: a user with these rights and no others can do all that the kit does."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from redis_cluster_kit import (
    Cluster,
    Entity,
    HandlerFailedError,
    LeaseSettings,
    PersistenceFailedError,
    RedisSettings,
    Retry,
    Settings,
    ShardSettings,
    SingletonContext,
    rpc,
)
from redis_cluster_kit.cli.doctor.rights_checks import check_rights
from redis_cluster_kit.embedded import RedisClusterServers, RedisServer
from redis_cluster_kit.redis_access import Keyspace, Lanes, RedisUrl
from redis_cluster_kit.testing import until

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "tls-and-acl.md").read_text()
LINES = {
    name: line.split() for name, line in re.findall(r'^```text title="(\w+)"\n(.+)\n```$', PAGE, re.MULTILINE)
}
CLUSTER_MODE = re.search(r"^\| cluster mode \| `([^`]+)` \|$", PAGE, re.MULTILINE)


class Count(msgspec.Struct):
    n: int = 0


class Counter(Entity[Count], name="counter", retry=Retry(base=timedelta(milliseconds=1), max_attempts=1)):
    @rpc
    async def add(self) -> int:
        self.state.n += 1
        await self.cluster.entity(Counter, "other").note.send()
        return self.state.n

    @rpc
    async def note(self) -> None:
        self.state.n += 100

    @rpc
    async def fail(self) -> None:
        raise RuntimeError("on purpose")

    @rpc(readonly=True)
    async def read(self) -> int:
        return self.state.n


def _masters(server: RedisServer | RedisClusterServers) -> list[RedisServer]:
    return list(server.servers) if isinstance(server, RedisClusterServers) else [server]


def _restricted(server: Any, line: list[str]) -> str:
    """Make the user that the line describes, and return the URL of a service that logs in as it."""
    assert line[:3] == ["ACL", "SETUSER", "shop"]
    if isinstance(server, RedisClusterServers):
        assert CLUSTER_MODE is not None
        line = [*line, *CLUSTER_MODE[1].split()]
    for master in _masters(server):
        assert master.call(*line) == "OK"
    scheme, _, rest = server.url.partition("://")
    return f"{scheme}://shop:secret@{rest}"


@pytest.mark.parametrize("name", ["least", "short"])
@pytest.mark.filterwarnings("ignore::redis_cluster_kit.ShortLeaseWarning")
async def test_all_that_the_kit_does(name: str, redis_server: Any, sqlite_url: str, namespace: str) -> None:
    url = _restricted(redis_server, LINES[name])
    settings = Settings(lease=LeaseSettings(ttl=timedelta(seconds=1)), shards=ShardSettings(per_group=4))
    try:
        await _check(url, settings, sqlite_url, namespace)
        async with Lanes(RedisUrl.parse(url), RedisSettings()) as lanes:
            finding = await check_rights(lanes, Keyspace(namespace, 16))
            assert finding.verdict == "ok", finding
            home = Keyspace(namespace, 16).home_slot
            assert await lanes.call(home, "WAIT", 0, 10) == 0  # what `replicated(n)` sends
            for forbidden in (("GET", "someone-elses"), ("FLUSHALL",)):
                with pytest.raises(PersistenceFailedError, match="NOPERM"):
                    await lanes.call(home, *forbidden)
    finally:
        for master in _masters(redis_server):
            master.call("ACL", "DELUSER", "shop")


async def _check(url: str, settings: Settings, database: str, namespace: str) -> None:
    def runner() -> Cluster:
        cluster = Cluster(url, database, namespace=namespace, entities=[Counter], settings=settings)
        cluster.singleton("leader", state=Count)(_lead)
        return cluster

    async with runner() as first, runner():
        counter = first.entity(Counter, "one")
        assert await counter.add.options(idempotency_key="k")() == 1
        assert await counter.add.options(idempotency_key="k")() == 1
        receipt = await counter.read.options(delay=timedelta(milliseconds=50)).send()
        assert await receipt.result(timeout=20) == 1
        later = await counter.add.options(delay=timedelta(hours=1)).send()
        assert await first.cancel(later.message_id)
        await until(_reads(first, 100), what="the relayed message")
        with pytest.raises(HandlerFailedError):
            await counter.fail()
        (letter,) = await first.dead_letters.list()
        assert await first.dead_letters.drop(letter.message_id)
        assert await first.broadcast(Counter.note) >= 1
        await first.kv.set("key", b"value")
        assert await first.kv.get("key") == b"value"
        await first.reset(Counter, "one")
        await first.delete(Counter, "other")
        await until(_is_led(first), what="the singleton's first save")


def _reads(cluster: Cluster, expected: int) -> Any:
    async def is_read() -> bool:
        return await cluster.entity(Counter, "other").read() == expected

    return is_read


def _is_led(cluster: Cluster) -> Any:
    async def is_saved() -> bool:
        return await cluster.singleton_state("leader", Count) is not None

    return is_saved


async def _lead(ctx: SingletonContext[Count]) -> None:
    await ctx.update(n=1)
