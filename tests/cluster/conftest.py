"""Helpers for tests of `Cluster`: settings that make it quick, and clusters that share a namespace."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from redis_cluster_kit import Cluster, LeaseSettings, Settings, ShardSettings, ShortLeaseWarning

MakeCluster = Callable[..., Cluster]


@pytest.fixture(autouse=True)
def short_leases_are_meant() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortLeaseWarning)
        yield


def quick(**groups: Any) -> Settings:
    """Leases of a second and few shards, unless the test says otherwise."""
    groups.setdefault("lease", LeaseSettings(ttl=timedelta(seconds=1)))
    groups.setdefault("shards", ShardSettings(per_group=12))
    return Settings(**groups)


@pytest.fixture
def make_cluster(valkey: Any, sqlite_url: str, namespace: str) -> MakeCluster:
    """Make runners of one cluster; keywords overrule what it would have."""

    def make(**options: Any) -> Cluster:
        options = {"redis": valkey.url, "database": sqlite_url, "settings": quick()} | options
        return Cluster(namespace=namespace, **options)

    return make
