"""Who may join, and what a refusal says."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from redis_cluster_kit import (
    Cluster,
    JoinRefusedError,
    LeaseSettings,
    PersistenceFailedError,
    RedisSettings,
    Registry,
    Settings,
    ShardSettings,
    SingletonContext,
)
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.joining import check_one_host
from redis_cluster_kit.ownership import Member
from redis_cluster_kit.redis_access import Keyspace
from redis_cluster_kit.storage import ClusterRecord
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, quick


async def join(cluster: Cluster) -> None:
    async with cluster:
        pass


async def refusal(cluster: Cluster) -> JoinRefusedError:
    with pytest.raises(JoinRefusedError) as caught:
        await join(cluster)
    return caught.value


async def test_another_number_of_partitions_is_refused_with_both_values(make_cluster: MakeCluster) -> None:
    await join(make_cluster())
    error = await refusal(make_cluster(settings=quick(shards=ShardSettings(per_group=12, partitions=4))))
    assert (error.setting, error.expected, error.found) == ("partitions", 16, 4)


async def test_another_number_of_shards_is_refused_with_both_values(make_cluster: MakeCluster) -> None:
    await join(make_cluster())
    error = await refusal(make_cluster(settings=quick(shards=ShardSettings(per_group=13))))
    assert (error.expected, error.found) == (12, 13)
    assert "default" in error.setting


async def test_another_database_is_refused(make_cluster: MakeCluster, tmp_path: Path) -> None:
    await join(make_cluster())
    error = await refusal(make_cluster(database=f"sqlite+aiosqlite:///{tmp_path / 'other.db'}"))
    assert error.setting == "database"
    assert "without this cluster's record" in str(error.found)


async def test_no_database_is_refused_where_the_cluster_has_one(make_cluster: MakeCluster) -> None:
    await join(make_cluster())
    weak = quick(redis=RedisSettings(assume_weak_fences=True))
    error = await refusal(make_cluster(database=None, settings=weak))
    assert error.setting == "database"


async def test_the_databases_record_wins_after_a_wipe(
    make_cluster: MakeCluster, valkey: RedisServer, namespace: str
) -> None:
    await join(make_cluster())
    key = Keyspace(namespace, 16).record
    before = valkey.call("GET", key)
    valkey.call("DEL", key)
    await refusal(make_cluster(settings=quick(shards=ShardSettings(per_group=13))))
    await join(make_cluster())
    assert valkey.call("GET", key) == before


async def test_a_record_from_an_old_dump_is_overruled(
    make_cluster: MakeCluster, valkey: RedisServer, namespace: str
) -> None:
    await join(make_cluster())
    key = Keyspace(namespace, 16).record
    before = str(valkey.call("GET", key))
    old = msgspec.structs.replace(ClusterRecord.from_json(before), shard_counts={})
    valkey.call("SET", key, old.to_json())
    await join(make_cluster())
    assert valkey.call("GET", key) == before


async def test_without_a_database_redis_must_keep_what_it_acknowledged(make_cluster: MakeCluster) -> None:
    error = await refusal(make_cluster(database=None))
    assert "appendonly" in error.setting
    assert "assume_weak_fences" in error.hint


async def test_the_weak_tier_joins_where_its_conditions_hold(namespace: str) -> None:
    with RedisServer.start(append_only=True, fsync="always") as server:
        cluster = Cluster(server.url, None, namespace=namespace, settings=quick())
        async with cluster:
            await until(lambda: len(owned(cluster)) == 12, what="all shards owned")
            fences = [shard.fence for shard in owned(cluster).values()]
            assert min(fences) > 1_700_000_000_000


async def test_eviction_is_refused_and_may_be_vouched_for(namespace: str, sqlite_url: str) -> None:
    with RedisServer.start(extra=("--maxmemory-policy", "allkeys-lru")) as server:
        cluster = Cluster(server.url, sqlite_url, namespace=namespace, settings=quick())
        error = await refusal(cluster)
        assert (error.setting, error.expected, error.found) == (
            "maxmemory-policy",
            "noeviction",
            "allkeys-lru",
        )
        careless = quick(redis=RedisSettings(eviction_check="warn"))
        await join(Cluster(server.url, sqlite_url, namespace=namespace, settings=careless))


async def test_nothing_a_cluster_holds_shows_a_password(namespace: str, tmp_path: Path) -> None:
    """Error reporters print the attributes of what they find on the stack."""
    with RedisServer.start(password="hunter2") as server:
        database = f"sqlite+aiosqlite:///{tmp_path / 'hunter2.db'}"
        async with Cluster(server.url, database, namespace=namespace, settings=quick()) as cluster:
            runner = cluster._runner
            assert runner is not None
            for held in (cluster, runner, runner.commands, runner.leases, runner.membership):
                shown = f"{held!r} {vars(held)!r}".replace("hunter2.db", "")
                assert "hunter2" not in shown, type(held).__name__


RIGHTS = ("~rck:*", "+@all", "-@dangerous", "-@admin")
READING_THE_POLICY = ("+info", "+config|get")


def url_of_user(server: RedisServer, *rights: str) -> str:
    """The server's URL for a user with these rights."""
    with server.connect() as client:
        client.call("ACL", "SETUSER", "kit", "reset", "on", ">secret", *rights)
    return f"redis://kit:secret@127.0.0.1:{server.port}"


@pytest.mark.parametrize("where", ["valkey", "redis"])
async def test_the_documented_rights_are_enough(where: str, namespace: str, sqlite_url: str) -> None:
    binary = None if where == "valkey" else shutil.which("redis-server")
    if where == "redis" and binary is None:
        pytest.skip("no redis-server on the PATH")
    with RedisServer.start(binary=binary) as server:
        url = url_of_user(server, *RIGHTS, *READING_THE_POLICY)
        cluster = Cluster(url, sqlite_url, namespace=namespace, settings=quick())
        async with cluster:
            await until(lambda: len(owned(cluster)) == 12, what="all shards owned")
            assert (await cluster.health()).ready
        with server.connect() as client:
            assert client.call("ACL", "LOG") == [], "a command was refused"


async def test_who_cannot_read_the_policy_must_vouch_for_it(namespace: str, sqlite_url: str) -> None:
    with RedisServer.start() as server:
        url = url_of_user(server, *RIGHTS)
        error = await refusal(Cluster(url, sqlite_url, namespace=namespace, settings=quick()))
        assert "assume_noeviction" in str(error)
        vouching = quick(redis=RedisSettings(assume_noeviction=True))
        await join(Cluster(url, sqlite_url, namespace=namespace, settings=vouching))


def test_a_second_host_on_an_sqlite_file_is_refused() -> None:
    me = Member(runner_id="me", boot_id="one")
    check_one_host(me, {"twin": Member(runner_id="twin", boot_id="one")})
    with pytest.raises(JoinRefusedError, match="PostgreSQL"):
        check_one_host(me, {"far": Member(runner_id="far", boot_id="two", host="elsewhere")})


async def test_a_server_that_is_not_there_is_a_typed_error_without_the_password(sqlite_url: str) -> None:
    hasty = Settings(redis=RedisSettings(retry_for=timedelta(milliseconds=100)), lease=LeaseSettings())
    cluster = Cluster("redis://:hunter2@127.0.0.1:1", sqlite_url, settings=hasty)
    with pytest.raises(PersistenceFailedError) as caught:
        await join(cluster)
    assert "hunter2" not in f"{caught.value!r} {caught.value} {cluster!r} {caught.value.__cause__!r}"


def owned(cluster: Cluster) -> dict[object, object]:
    runner = cluster._runner
    assert runner is not None
    assert runner.ownership is not None
    return dict(runner.ownership.owned)


async def test_without_a_database_no_runner_forgets_anothers_groups(
    namespace: str, valkey: RedisServer
) -> None:
    """Each writes the record again now and then, in case it was wiped: with what the others have added."""

    def runner(**counts: int) -> Cluster:
        registry = Registry()
        for group in counts:

            @registry.singleton(f"of-{group}", shard_group=group)
            async def idle(ctx: SingletonContext[None]) -> None:
                pass

        weak = quick(
            redis=RedisSettings(assume_weak_fences=True), shards=ShardSettings(per_group=12, groups=counts)
        )
        return Cluster(valkey.url, None, namespace=namespace, settings=weak, include=[registry])

    async with runner(first=8) as before, runner(second=8) as after:
        for cluster in (before, after, before):
            await cluster.joined_runner().audit()
        error = await refusal(runner(second=9))
        assert (error.expected, error.found) == (8, 9)
        error = await refusal(runner(first=9))
        assert (error.expected, error.found) == (8, 9)
        key = Keyspace(namespace, 16).record
        valkey.call("DEL", key)
        for cluster in (before, after):
            await cluster.joined_runner().audit()
        assert ClusterRecord.from_json(str(valkey.call("GET", key))).shard_counts == {"first": 8, "second": 8}
