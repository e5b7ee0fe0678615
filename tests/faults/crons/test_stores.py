"""The database away, or silent after a write: instants wait, and each has its one tick."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from redis_cluster_kit import Cluster, LeaseSettings, Registry, Settings, ShardSettings, Tick
from redis_cluster_kit.embedded import PostgresServer, RedisServer
from redis_cluster_kit.runtime import CronHost
from redis_cluster_kit.settings import DatabaseSettings
from redis_cluster_kit.testing import Proxy, statement, until

from .conftest import PATIENCE

pytestmark = [pytest.mark.faults, pytest.mark.filterwarnings("ignore::redis_cluster_kit.ShortLeaseWarning")]


class Seconds:
    """A cron that comes every second, and what it saw."""

    def __init__(self) -> None:
        self.ran: list[datetime] = []
        self.attempts: set[int] = set()
        self.registry = Registry()
        self.registry.cron("* * * * * *", name="clock", calculate_next_run_from_previous=True)(self.run)

    async def run(self, tick: Tick) -> None:
        self.ran.append(tick.scheduled)
        self.attempts.add(tick.attempt)

    async def more(self, number: int) -> None:
        before = len(self.ran)
        await until(lambda: len(self.ran) >= before + number, timeout=PATIENCE, what=f"{number} more ticks")

    async def check(self, cluster: Cluster) -> None:
        """No instant is missing, none came twice, and the database has counted all of them."""
        ran = sorted(self.ran)
        assert len(set(ran)) == len(ran)
        assert ran[-1] - ran[0] == timedelta(seconds=len(ran) - 1)
        assert self.attempts == {1}

        async def counted() -> bool:
            (info,) = await cluster.crons.list()
            return info.run_count == len(self.ran)

        await until(counted, timeout=PATIENCE, what="the database has counted each, once")


@asynccontextmanager
async def running(
    seconds: Seconds, redis: str, database: str, namespace: str, ttl: float = 1
) -> AsyncIterator[tuple[Cluster, CronHost]]:
    lease = timedelta(seconds=ttl)
    settings = Settings(
        lease=LeaseSettings(ttl=lease),
        shards=ShardSettings(per_group=4),
        database=DatabaseSettings(statement_timeout=lease * 0.9),
    )
    async with Cluster(
        redis, database, namespace=namespace, settings=settings, include=[seconds.registry]
    ) as cluster:
        await seconds.more(2)
        host = cluster.joined_runner().host
        assert host is not None
        assert host.crons is not None
        yield cluster, host.crons


async def test_a_database_that_goes_away_and_comes_back(
    valkey: RedisServer, private_postgres: PostgresServer, namespace: str
) -> None:
    seconds = Seconds()
    async with running(seconds, valkey.url, private_postgres.url, namespace) as (cluster, crons):
        private_postgres.kill()
        await until(lambda: crons.planner.trouble, timeout=PATIENCE, what="nothing can be planned")
        last = max(seconds.ran)
        since = cluster.joined_runner().clock.utcnow
        await until(lambda: since() > last + timedelta(seconds=4), timeout=PATIENCE, what="instants pass")
        assert max(seconds.ran) < since() - timedelta(seconds=2)
        private_postgres.restart()
        await seconds.more(6)
        await seconds.check(cluster)
        assert not crons.planner.trouble


@pytest.mark.parametrize(
    "write", ["INSERT INTO rck_cron_instant", "SET status = 'pending'", "SET failures = 0", "COMMIT"]
)
async def test_a_write_that_is_not_answered(
    valkey: RedisServer, postgres_proxy: tuple[Proxy, str], namespace: str, write: str
) -> None:
    """Of an instant's row, of a tick's beginning, of its end: it was done, and nobody said so."""
    proxy, url = postgres_proxy
    seconds = Seconds()
    async with running(seconds, valkey.url, url, namespace, ttl=3) as (cluster, _):
        losses = [proxy.lose_reply(statement(write), nth=nth) for nth in (1, 3)]
        await until(lambda: all(loss.count for loss in losses), timeout=PATIENCE, what="two lost replies")
        await seconds.more(3)
        for loss in losses:
            loss.assert_fired(1)
        await seconds.check(cluster)
