"""Servers together: a cluster answers for every slot, a replica lags and is promoted, Sentinel fails over."""

from __future__ import annotations

import re

import pytest

from redis_cluster_kit.embedded import (
    RedisClusterServers,
    RedisServer,
    ReplicatedServers,
    RespError,
    SentinelServers,
)
from redis_cluster_kit.embedded.processes import wait_until


def _role(server: RedisServer) -> object:
    reply = server.call("ROLE")
    assert isinstance(reply, list)
    return reply[0]


def _set(server: RedisServer, key: str) -> str:
    try:
        return str(server.call("SET", key, "1", "PX", 5_000))
    except RespError as error:
        return str(error)


def test_cluster_answers_for_the_slots_of_all_masters(
    valkey_cluster: RedisClusterServers, namespace: str
) -> None:
    ports = [server.port for server in valkey_cluster.servers]
    assert valkey_cluster.url == "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in ports)
    first, *_ = valkey_cluster.servers
    ranges = first.call("CLUSTER", "SLOTS")
    assert isinstance(ranges, list)
    owned = dict.fromkeys(ports, 0)
    for entry in ranges:
        assert isinstance(entry, list)
        begin, end, owner = entry[:3]
        assert isinstance(owner, list)
        owned[int(str(owner[1]))] += int(str(end)) - int(str(begin)) + 1
    assert sum(owned.values()) == 16_384
    assert max(owned.values()) - min(owned.values()) <= 1


def test_each_key_of_a_cluster_lives_on_one_master(
    valkey_cluster: RedisClusterServers, namespace: str
) -> None:
    served: set[int] = set()
    for number in range(12):
        key = f"{namespace}:{{{number}}}"
        answers = {server.port: _set(server, key) for server in valkey_cluster.servers}
        [home] = [port for port, answer in answers.items() if answer == "OK"]
        moved = [
            answer for answer in answers.values() if re.fullmatch(rf"MOVED \d+ 127\.0\.0\.1:{home}", answer)
        ]
        assert len(moved) == 2
        served.add(home)
    assert served == {server.port for server in valkey_cluster.servers}


def test_cluster_survives_the_restart_of_a_master() -> None:
    with RedisClusterServers.start() as cluster:
        victim = cluster.servers[1]
        victim.kill()
        victim.restart()
        wait_until(
            lambda: all("cluster_state:ok" in str(it.call("CLUSTER", "INFO")) for it in cluster.servers),
            10,
            "the cluster to be whole again",
        )
        pids = [server.pid for server in cluster.servers]
    assert len(set(pids)) == 3
    assert not any(server.alive for server in cluster.servers)


def test_promoted_replica_has_what_was_replicated_and_takes_writes() -> None:
    with ReplicatedServers.start() as pair:
        with pair.primary.connect() as client:
            client.call("SET", "a", "1")
            assert client.call("WAIT", 1, 500) == 1  # replication flows from the start
        assert pair.replica.call("GET", "a") == "1"
        with pytest.raises(RespError, match="READONLY"):
            pair.replica.call("SET", "b", "1")
        assert pair.promote() is pair.replica
        assert _role(pair.replica) == "master"
        pair.replica.call("SET", "b", "1")
        assert pair.primary.call("GET", "b") is None
        assert pair.url == pair.primary.url


def test_replica_held_back_lacks_later_writes_until_it_catches_up() -> None:
    with ReplicatedServers.start() as pair:
        pair.primary.call("SET", "fence", "10")
        pair.catch_up()
        pair.hold_back()
        pair.primary.call("SET", "fence", "12")
        assert (_role(pair.replica), pair.replica.call("GET", "fence")) == ("slave", "10")
        pair.catch_up()
        assert pair.replica.call("GET", "fence") == "12"
        pair.hold_back()
        pair.primary.call("SET", "fence", "13")
        assert pair.promote().call("GET", "fence") == "12"  # the fence has gone back


def test_sentinels_fail_over_to_the_replica() -> None:
    with SentinelServers.start(3, down_after_ms=300) as servers:
        assert servers.master_port() == servers.primary.port
        assert re.fullmatch(r"redis\+sentinel://(127\.0\.0\.1:\d+,?)+/main/0", servers.url)
        servers.primary.kill()
        wait_until(
            lambda: servers.master_port() == servers.replica.port and _role(servers.replica) == "master",
            15,
            "the sentinels to promote the replica",
        )
        assert servers.replica.call("SET", "a", "1") == "OK"


def test_servers_started_before_a_failure_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[RedisServer] = []
    launch = RedisServer.start

    def start_two(**options: object) -> RedisServer:
        if len(started) == 2:
            raise RuntimeError("no third one")
        started.append(launch(**options))  # type: ignore[arg-type]
        return started[-1]

    monkeypatch.setattr(RedisServer, "start", start_two)
    with pytest.raises(RuntimeError, match="no third one"):
        RedisClusterServers.start()
    assert [server.alive for server in started] == [False, False]
