"""Helpers for tests of crons: clusters that share a namespace, on either database, and a look at the rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from redis_cluster_kit import Cluster, Retry
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.settings import DatabaseSettings
from redis_cluster_kit.storage import Database
from tests.singleton.conftest import (
    TTL,
    MakeCluster,
    make_sqlite_cluster,
    quick,
    quiet,
    short_leases_are_meant,
)

__all__ = [
    "TTL",
    "MakeCluster",
    "Rows",
    "at_once",
    "make_sqlite_cluster",
    "planned",
    "quick",
    "quiet",
    "short_leases_are_meant",
]

Rows = Callable[[str], Awaitable[list[tuple[Any, ...]]]]


def at_once(attempts: int = 3) -> Retry:
    """Attempts without pauses worth mentioning."""
    return Retry(base=timedelta(milliseconds=1), factor=1, max_attempts=attempts)


def planned(cluster: Cluster) -> set[str]:
    """The crons this runner plans."""
    host = cluster.joined_runner().host
    return set() if host is None or host.crons is None else set(host.crons.planner.planned)


@pytest.fixture
def make_cluster(valkey: RedisServer, database_url: str, namespace: str) -> MakeCluster:
    """Make runners of one cluster, on each kind of database in turn; keywords overrule what it would have."""

    def make(**options: Any) -> Cluster:
        options = {"redis": valkey.url, "database": database_url, "settings": quick()} | options
        return Cluster(namespace=namespace, **options)

    return make


@pytest.fixture
def rows(database_url: str) -> Rows:
    """Run one statement past the kit."""

    async def run(statement: str) -> list[tuple[Any, ...]]:
        async with Database(database_url, DatabaseSettings(), ttl=TTL) as database:
            found = await database.read(lambda c: c.execute(text(statement)).all(), timeout=5)
            return [tuple(row) for row in found]

    return run
