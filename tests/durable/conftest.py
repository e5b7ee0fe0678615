"""Helpers for tests of durable steps: runners that join quickly, and looks into what is recorded."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Protocol

import pytest

from redis_cluster_kit import (
    Cluster,
    DurableSettings,
    Entity,
    LeaseSettings,
    Settings,
    ShardSettings,
    ShortLeaseWarning,
)
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.runtime import EntityHost, Executions
from redis_cluster_kit.runtime.forgetting import Forgetting

from .flows import WORLD


class MakeCluster(Protocol):
    """Makes one runner of the test's cluster."""

    def __call__(self, *entities: type[Entity[Any]], **options: Any) -> Cluster: ...


@pytest.fixture(autouse=True)
def short_leases_are_meant() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortLeaseWarning)
        yield


@pytest.fixture(autouse=True)
def a_new_world() -> None:
    WORLD.begin()


def quick(**groups: Any) -> Settings:
    """Leases of a second and few shards, unless the test says otherwise."""
    groups.setdefault("lease", LeaseSettings(ttl=timedelta(seconds=1)))
    groups.setdefault("shards", ShardSettings(per_group=4, partitions=2))
    groups.setdefault("durable", DurableSettings(wake_poll=timedelta(milliseconds=200)))
    return Settings(**groups)


@pytest.fixture
def make_cluster(valkey: RedisServer, sqlite_url: str, namespace: str) -> MakeCluster:
    """Make runners of one cluster; keywords overrule what it would have."""

    def make(*entities: type[Entity[Any]], **options: Any) -> Cluster:
        options = {"redis": valkey.url, "database": sqlite_url, "settings": quick()} | options
        return Cluster(namespace=namespace, entities=entities, **options)

    return make


@pytest.fixture
def rows(sqlite_url: str) -> Rows:
    """Look into the database's tables."""
    return Rows(sqlite_url.partition(":///")[2])


class Rows:
    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, query: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self._path, timeout=5)
        try:
            found = connection.execute(query).fetchall()
            connection.commit()
            return found
        finally:
            connection.close()

    def count(self, table: str) -> int:
        return int(self(f"SELECT count(*) FROM {table}")[0][0])


def host_of(cluster: Cluster) -> EntityHost:
    host = cluster.joined_runner().host
    assert host is not None
    return host


def executions_of(cluster: Cluster) -> Executions:
    return cluster.joined_runner().executions


def forgetting_of(cluster: Cluster) -> Forgetting:
    forgetting = executions_of(cluster).forgetting
    assert forgetting is not None
    return forgetting


def residents(cluster: Cluster) -> int:
    return len(host_of(cluster).residents)
