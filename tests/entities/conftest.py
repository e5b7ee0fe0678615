"""Helpers for tests of entities: runners that join quickly, and looks into what they have stored."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Protocol

import pytest

from redis_cluster_kit import Cluster, Entity, LeaseSettings, Settings, ShardSettings, ShortLeaseWarning
from redis_cluster_kit.delivery import Mailboxes, Parcel
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.redis_access import ShardKeys
from redis_cluster_kit.runtime import EntityHost


class MakeCluster(Protocol):
    """Makes one runner of the test's cluster."""

    def __call__(self, *entities: type[Entity[Any]], **options: Any) -> Cluster: ...


@pytest.fixture(autouse=True)
def short_leases_are_meant() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortLeaseWarning)
        yield


def quick(**groups: Any) -> Settings:
    """Leases of a second and few shards, unless the test says otherwise."""
    groups.setdefault("lease", LeaseSettings(ttl=timedelta(seconds=1)))
    groups.setdefault("shards", ShardSettings(per_group=4, partitions=2))
    return Settings(**groups)


@pytest.fixture
def make_cluster(valkey: RedisServer, sqlite_url: str, namespace: str) -> MakeCluster:
    """Make runners of one cluster; keywords overrule what it would have."""

    def make(*entities: type[Entity[Any]], **options: Any) -> Cluster:
        options = {"redis": valkey.url, "database": sqlite_url, "settings": quick()} | options
        return Cluster(namespace=namespace, entities=entities, **options)

    return make


# --- What is stored, and who runs ---


def keys_of(cluster: Cluster, entity: type[Entity[Any]], id: str) -> ShardKeys:
    return cluster.joined_runner().keyspace.of(cluster.shard_of(entity, id))


def stored_keys(server: RedisServer, cluster: Cluster) -> set[str]:
    """The keys of the namespace that hold messages or states."""
    found = server.call("KEYS", cluster.joined_runner().keyspace.pattern())
    assert isinstance(found, list)
    kinds = ("mailbox", "entity", "active", "live", "done", "scheduled", "later", "outbox", "dead")
    return {key for key in map(str, found) if key.split("}:")[1].split(":")[0] in kinds}


_READ = {"hash": ("HKEYS",), "set": ("SMEMBERS",), "zset": ("ZRANGE", 0, -1)}


def traces_of(server: RedisServer, cluster: Cluster, member: str) -> set[str]:
    """The kinds of keys that hold anything of this entity, `type:id`."""
    found = set[str]()
    for key in stored_keys(server, cluster):
        kind = key.split("}:")[1].split(":")[0]
        command = _READ.get(str(server.call("TYPE", key)))
        if key.endswith(f":{member}"):
            found.add(kind)
        elif command is not None:
            fields = server.call(command[0], key, *command[1:])
            assert isinstance(fields, list)
            if any(member in str(field) for field in fields):
                found.add(kind)
    return found


def host_of(cluster: Cluster) -> EntityHost:
    host = cluster.joined_runner().host
    assert host is not None
    return host


def mailboxes_of(cluster: Cluster) -> Mailboxes:
    return cluster.joined_runner().messaging.mailboxes


def residents(cluster: Cluster) -> int:
    return len(host_of(cluster).residents)


def owns_all(*clusters: Cluster, shards: int = 4) -> bool:
    """Whether these runners hold all shards between them, each its fair share."""
    counts = [len(host_of(cluster).shards) for cluster in clusters]
    return sum(counts) == shards and max(counts) - min(counts) <= 1


def raw_parcel(
    cluster: Cluster, entity: type[Entity[Any]], id: str, message: bytes, number: int = 1
) -> Parcel:
    """A message as no caller would make it."""
    shard = cluster.shard_of(entity, id)
    name = entity.__declaration__.name
    return Parcel(
        group=shard.group,
        number=shard.number,
        member=f"{name}:{id}",
        id=f"00000000000a-{number}",
        message=message,
    )


async def put_raw(cluster: Cluster, parcel: Parcel) -> str:
    """Put it into its mailbox; return its public id."""
    not_after = cluster.joined_runner().clock.server_ms() + 60_000
    put = await mailboxes_of(cluster).put(parcel, not_after)
    assert put.word == "appended"
    return f"{parcel.id}@{parcel.group}:{parcel.member}"
