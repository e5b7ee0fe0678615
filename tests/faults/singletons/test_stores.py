"""Stores away, slow, or silent: typed errors, readiness says so, nothing acknowledged is lost."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import msgspec
import pytest

from redis_cluster_kit import (
    Cluster,
    KitError,
    LeaseSettings,
    Registry,
    Settings,
    ShardSettings,
    SingletonContext,
    StatePersistFailedError,
)
from redis_cluster_kit.embedded import PostgresServer, RedisServer
from redis_cluster_kit.errors import PersistenceFailedError
from redis_cluster_kit.settings import DatabaseSettings
from redis_cluster_kit.storage.redis_state import WRITE
from redis_cluster_kit.testing import Proxy, command, statement, until

pytestmark = [pytest.mark.faults, pytest.mark.filterwarnings("ignore::redis_cluster_kit.ShortLeaseWarning")]
PATIENCE = 30.0


class Count(msgspec.Struct):
    seen: int = 0


class Counter:
    """A singleton that counts without end, and what it was told."""

    def __init__(self) -> None:
        self.saved: list[int] = []
        self.failed: list[KitError] = []
        self.fences: list[int] = []
        self.registry = Registry()
        self.registry.singleton("counter", state=Count)(self.count)

    async def count(self, ctx: SingletonContext[Count]) -> None:
        self.fences.append(ctx.fence)
        while True:
            following = ctx.state.seen + 1
            try:
                await ctx.set(Count(following))
            except StatePersistFailedError as error:
                self.failed.append(error)
                continue
            self.saved.append(following)
            await anyio.sleep(0.01)

    async def goes_on(self) -> None:
        """Wait until it has saved more than now."""
        before = len(self.saved)
        await until(lambda: len(self.saved) > before + 3, timeout=PATIENCE, what="it saves")

    def check(self) -> None:
        """Every number was acknowledged once, in order, though the last may have been saved unheard."""
        assert self.saved == sorted(set(self.saved))


@asynccontextmanager
async def running(counter: Counter, redis: str, database: str, namespace: str, ttl: float = 1) -> Any:
    lease = timedelta(seconds=ttl)
    settings = Settings(
        lease=LeaseSettings(ttl=lease),
        shards=ShardSettings(per_group=2),
        database=DatabaseSettings(statement_timeout=lease * 0.9),
    )
    async with Cluster(
        redis, database, namespace=namespace, settings=settings, include=[counter.registry]
    ) as cluster:
        await counter.goes_on()
        yield cluster


async def stored(cluster: Cluster, *, fresh: bool = True) -> Any:
    found = await cluster.singleton_state("counter", Count, fresh=fresh)
    assert found is not None
    return found


async def test_a_database_that_goes_away_and_comes_back(
    valkey: RedisServer, private_postgres: PostgresServer, namespace: str
) -> None:
    counter = Counter()
    async with running(counter, valkey.url, private_postgres.url, namespace) as cluster:
        private_postgres.kill()
        await until(lambda: bool(counter.failed), timeout=PATIENCE, what="a typed error")
        assert counter.failed[0].is_retryable  # type: ignore[attr-defined]
        assert isinstance(counter.failed[0].__cause__, PersistenceFailedError)
        report = await cluster.health()
        assert not report.ready
        assert report.live
        assert any("its state could not be saved" in reason for reason in report.reasons)
        assert any(reason.startswith("database: ") for reason in report.reasons)
        acknowledged = counter.saved[-1]
        shown = await stored(cluster, fresh=False)
        assert shown.state.seen <= acknowledged  # database first: Redis never shows what was not saved
        private_postgres.restart()
        await counter.goes_on()
        assert counter.saved.index(acknowledged) + 1 < len(counter.saved)
        counter.check()
        assert (await stored(cluster)).state.seen >= counter.saved[-1]
        assert len(set(counter.fences)) == 1  # its lease lives in Redis: the same leader went on

        async def ready() -> bool:
            return bool((await cluster.health()).ready)

        await until(ready, timeout=PATIENCE, what="ready again")


async def test_a_database_that_is_down_at_the_start_is_a_typed_error(
    valkey: RedisServer, private_postgres: PostgresServer, namespace: str
) -> None:
    url = private_postgres.url
    private_postgres.kill()
    counter = Counter()
    with pytest.raises(PersistenceFailedError, match="database") as failed:
        async with running(counter, valkey.url, url, namespace):
            pass
    assert failed.value.is_retryable
    private_postgres.restart()
    async with running(counter, valkey.url, private_postgres.url, namespace) as cluster:
        assert (await stored(cluster)).state.seen >= 1


async def test_a_slow_database_slows_down_and_loses_nothing(
    valkey: RedisServer, postgres_proxy: tuple[Proxy, str], namespace: str
) -> None:
    proxy, url = postgres_proxy
    counter = Counter()
    async with running(counter, valkey.url, url, namespace, ttl=2) as cluster:
        with proxy.delay(0.05, 0.15, probability=0.7) as delay:
            await counter.goes_on()
        delay.assert_fired()
        await counter.goes_on()
        counter.check()
        assert (await stored(cluster)).state.seen >= counter.saved[-1]


async def test_a_leader_whose_commit_was_not_answered_goes_on(
    valkey: RedisServer, postgres_proxy: tuple[Proxy, str], namespace: str
) -> None:
    """The write went through and nobody said so: found by its commit id, saved once; nobody resigns."""
    proxy, url = postgres_proxy
    counter = Counter()
    async with running(counter, valkey.url, url, namespace, ttl=2) as cluster:
        losses = [proxy.lose_reply(statement("UPDATE rck_singleton_state"), nth=nth) for nth in (1, 4)]
        await until(lambda: all(loss.count for loss in losses), timeout=PATIENCE, what="two lost replies")
        await counter.goes_on()
        for loss in losses:
            loss.assert_fired(1)
        counter.check()
        found = await stored(cluster)
        assert found.version == found.state.seen
        assert counter.saved == list(range(1, len(counter.saved) + 1))
        assert len(counter.fences) == 1
        assert not counter.failed


async def test_a_redis_that_does_not_take_the_copy_holds_up_nothing(
    valkey: RedisServer, sqlite_url: str, namespace: str
) -> None:
    """Only copies are lost; the state is safe, readers see an older version, then the newest."""
    counter = Counter()
    async with (
        Proxy.to("127.0.0.1", valkey.port) as proxy,
        running(counter, proxy.url(valkey.url), sqlite_url, namespace, ttl=5) as cluster,
    ):
        losses = [proxy.lose_command(command("EVALSHA", argument=(1, WRITE.sha)), nth=n) for n in (1, 3)]
        await until(lambda: all(loss.count for loss in losses), timeout=PATIENCE, what="two lost copies")
        await counter.goes_on()
        newest = counter.saved[-1]

        async def copied() -> bool:
            return bool((await stored(cluster, fresh=False)).version >= newest)

        await until(copied, timeout=PATIENCE, what="the copy is repaired")
        counter.check()
        assert not counter.failed
        assert len(counter.fences) == 1


async def test_a_redis_that_is_away_ends_the_leadership_and_keeps_the_state(
    private_valkey: RedisServer, sqlite_url: str, namespace: str
) -> None:
    counter = Counter()
    async with running(counter, private_valkey.url, sqlite_url, namespace) as cluster:
        private_valkey.pause()
        host = cluster.joined_runner().host
        assert host is not None
        await until(lambda: host.singletons.led == 0, timeout=PATIENCE, what="nobody leads without a lease")
        acknowledged = counter.saved[-1]
        assert not (await cluster.health()).ready
        private_valkey.resume()
        await until(lambda: len(counter.fences) == 2, timeout=PATIENCE, what="it is led again")
        await counter.goes_on()
        assert counter.fences[1] > counter.fences[0]
        assert acknowledged in counter.saved
        counter.check()
        assert (await stored(cluster)).state.seen >= counter.saved[-1] > acknowledged


async def test_a_redis_that_was_killed_and_restarted_empty(
    private_valkey: RedisServer, sqlite_url: str, namespace: str
) -> None:
    counter = Counter()
    async with running(counter, private_valkey.url, sqlite_url, namespace) as cluster:
        private_valkey.kill()
        private_valkey.restart(empty=True)
        await until(lambda: len(counter.fences) > 1, timeout=PATIENCE, what="it is led again")
        await counter.goes_on()
        assert counter.fences == sorted(set(counter.fences))
        counter.check()

        async def copied() -> bool:
            return bool((await stored(cluster, fresh=False)).version >= counter.saved[0])

        await until(copied, timeout=PATIENCE, what="the copy is there again")
