"""`rck keys`: its commands work as they stand, and a scan finds what is there, on every kind of server."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from redis_cluster_kit import Entity, rpc
from redis_cluster_kit.cli.keys import redis_cli
from redis_cluster_kit.embedded import RedisClusterServers, RedisServer
from redis_cluster_kit.redis_access import KINDS, RedisUrl, kind_of

from .conftest import SHARDS, Rck, joined


@pytest.fixture
def rck(redis_server: Any, sqlite_url: str, namespace: str) -> Rck:
    return Rck({"RCK_REDIS": redis_server.url, "RCK_DATABASE": sqlite_url, "RCK_NAMESPACE": namespace})


def holder_of(server: RedisServer | RedisClusterServers, key: str) -> RedisServer:
    """The server that has the key's slot."""
    if isinstance(server, RedisServer):
        return server
    for part in server.servers:
        with part.connect() as client:
            try:
                client.call("TYPE", key)
            except Exception as error:
                if "MOVED" not in str(error):
                    raise
            else:
                return part
    raise AssertionError(f"nobody has {key}")


async def test_every_command_reads_its_key(rck: Rck, redis_server: Any) -> None:
    async with joined(rck) as cluster:
        data = (await rck("keys", "--shard", "default:7", "--json")).data
        assert [item["kind"] for item in data["kinds"]] == [kind.name for kind in KINDS]
        there = set()
        for item in data["kinds"]:
            key, words = item["key"], shlex.split(item["command"])
            assert key in words
            if "<" in key:
                continue
            found = kind_of(key)
            assert found is not None
            assert found.name == item["kind"]
            server = holder_of(redis_server, key)
            server.call(*words)
            if server.call("EXISTS", key):
                there.add(item["kind"])
                assert server.call("TYPE", key) == item["type"]
        assert there >= {"record", "members", "alive", "version", "lease", "fence", "inbox"}
        (inbox,) = [item["key"] for item in data["kinds"] if item["kind"] == "inbox"]
        assert inbox.endswith(cluster.runner_id)
        (lease,) = [item["key"] for item in data["kinds"] if item["kind"] == "lease"]
        assert ":07}:lease:default:7" in lease


async def test_in_words(rck: Rck) -> None:
    answer = await rck("keys")  # also before anybody has joined
    assert answer.code == 0
    namespace = rck.variables["RCK_NAMESPACE"]
    assert f"GET 'rck:{{{namespace}:00}}:record'" in answer.out.splitlines()
    assert answer.out.splitlines()[1].startswith("redis-cli -h 127.0.0.1 -p ")


async def test_a_scan(rck: Rck) -> None:
    async with joined(rck):
        data = (await rck("keys", "--scan", "--json")).data
        assert data["kinds"]["lease"] == data["kinds"]["fence"] == SHARDS
        assert data["total"] == sum(data["kinds"].values()) == len(data["keys"])
        by_kind = {item["kind"]: item for item in data["keys"]}
        assert by_kind["record"]["ttl_ms"] is None
        assert 0 < by_kind["lease"]["ttl_ms"] <= 1000
        limited = await rck("keys", "--scan", "--limit", "2")
        head, *rows, last = limited.out.splitlines()
        assert head.split() == ["key", "kind", "ttl"]
        assert len(rows) == 2
        assert last.startswith(f"{data['total']} keys: ")
        assert "the first 2 are shown" in last


class Account(Entity[int], name="account"):
    def initial(self) -> int:
        return 0

    @rpc
    async def add(self, amount: int) -> int:
        self.state += amount
        return self.state


async def test_an_entitys_own_keys(rck: Rck, redis_server: Any) -> None:
    name = "o'brien *"  # what a shell would misread
    async with joined(rck, entities=[Account]) as cluster:
        assert await cluster.entity(Account, name).add(5) == 5
        data = (await rck("keys", "--entity", f"account:{name}", "--json")).data
        assert data["shard"] == str(cluster.shard_of(Account, name))
        (command,) = [item["command"] for item in data["kinds"] if item["kind"] == "entity"]
        words = shlex.split(command)
        assert "v" in holder_of(redis_server, words[1]).call(*words)
        stranger = await rck("keys", "--entity", "stranger:1")
        assert stranger.code == 2
        assert "no live runner serves 'stranger'" in stranger.err


async def test_a_shard_that_is_none(rck: Rck) -> None:
    answer = await rck("keys", "--shard", "seven")
    assert answer.code == 2
    assert "group:number" in answer.err


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("redis://localhost/3", "redis-cli -h localhost -p 6379 -n 3"),
        ("redis://me:s3cret@h:1", "redis-cli -h h -p 1 --user … --askpass"),
        ("rediss://h:1", "redis-cli -h h -p 1 --tls"),
        ("unix:///run/redis.sock", "redis-cli -s /run/redis.sock"),
        ("redis+cluster://a:1,b:2", "redis-cli -h a -p 1 -c"),
        ("redis+sentinel://a:1/main", "redis-cli -h a -p 1 sentinel get-master-addr-by-name main"),
    ],
)
def test_how_redis_cli_gets_there(url: str, command: str) -> None:
    assert redis_cli(RedisUrl.parse(url)) == command
