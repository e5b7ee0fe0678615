"""Helpers for tests of singletons: clusters that share a namespace, on either database, with quick leases."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from redis_cluster_kit import (
    Cluster,
    DrainSettings,
    LeaseSettings,
    Settings,
    ShardSettings,
    ShortLeaseWarning,
)
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.settings import DatabaseSettings
from redis_cluster_kit.storage import Database
from redis_cluster_kit.testing import until

MakeCluster = Callable[..., Cluster]
TTL = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def short_leases_are_meant() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortLeaseWarning)
        yield


def quick(**groups: Any) -> Settings:
    """Leases of a second and few shards, unless the test says otherwise."""
    groups.setdefault("lease", LeaseSettings(ttl=TTL))
    groups.setdefault("shards", ShardSettings(per_group=4))
    # A loaded machine may take longer than the half a second that follows from the ttl.
    groups.setdefault("database", DatabaseSettings(statement_timeout=timedelta(milliseconds=900)))
    groups.setdefault("drain", DrainSettings(budget=timedelta(seconds=3)))
    return Settings(**groups)


@pytest.fixture
def make_cluster(valkey: RedisServer, database_url: str, namespace: str) -> MakeCluster:
    """Make runners of one cluster, on each kind of database in turn; keywords overrule what it would have."""

    def make(**options: Any) -> Cluster:
        options = {"redis": valkey.url, "database": database_url, "settings": quick()} | options
        return Cluster(namespace=namespace, **options)

    return make


@pytest.fixture
def make_sqlite_cluster(valkey: RedisServer, sqlite_url: str, namespace: str) -> MakeCluster:
    """The same on SQLite only, for what has nothing to do with the database."""

    def make(**options: Any) -> Cluster:
        options = {"redis": valkey.url, "database": sqlite_url, "settings": quick()} | options
        return Cluster(namespace=namespace, **options)

    return make


def led(cluster: Cluster) -> int:
    """How many singletons this runner leads."""
    host = cluster.joined_runner().host
    return 0 if host is None else host.singletons.led


async def leads(cluster: Cluster, number: int = 1) -> None:
    """Wait until this runner leads so many."""
    await until(lambda: led(cluster) == number, what=f"{number} singletons led")


@contextlib.contextmanager
def quiet(logger: str = "redis_cluster_kit.runtime.leader") -> Iterator[None]:
    """For tests whose singletons fail on purpose: what is logged is expected."""
    import logging

    found = logging.getLogger(logger)
    before, found.disabled = found.disabled, True
    try:
        yield
    finally:
        found.disabled = before


@pytest.fixture
def raw(database_url: str) -> Callable[[str], Awaitable[list[tuple[Any, ...]]]]:
    """Run one statement past the kit."""

    async def run(statement: str) -> list[tuple[Any, ...]]:
        async with Database(database_url, DatabaseSettings(), ttl=TTL) as database:
            rows = await database.read(lambda c: c.execute(text(statement)).all(), timeout=5)
            return [tuple(row) for row in rows]

    return run
