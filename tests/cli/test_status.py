"""`rck status` and `rck shards`: what they show of a real cluster, as text, as JSON, on a terminal."""

from __future__ import annotations

import json
import signal
import subprocess
from datetime import timedelta

import anyio.to_thread
import pytest

from redis_cluster_kit import Entity, LeaseSettings, rpc
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.redis_access import Keyspace
from redis_cluster_kit.testing import until

from .conftest import COMMAND, SHARDS, Rck, joined
from .terminal import in_terminal


class Account(Entity[None], name="account"):
    @rpc
    async def ping(self) -> str:
        return "pong"


async def test_a_cluster_in_words(rck: Rck) -> None:
    async with joined(rck, entities=[Account]) as cluster:
        answer = await rck("status")
        assert (answer.code, answer.err) == (0, "")
        head, titles, row, *more = answer.out.splitlines()
        assert f"1 runner · {SHARDS} of {SHARDS} shards owned" in head
        assert titles.split() == ["runner", "host", "pid", "state", "shards", "weight", "serves"]
        assert row.split()[0] == cluster.runner_id
        assert row.split()[3:] == ["serving", str(SHARDS), "1.0", "default:", "account"]
        assert more == []
        assert "\x1b" not in answer.out


async def test_a_cluster_in_json(rck: Rck) -> None:
    async with joined(rck, entities=[Account]) as first, joined(rck, hosting=False) as sender:
        data = (await rck("status", "--json")).data
        assert data["namespace"] == rck.variables["RCK_NAMESPACE"]
        assert data["groups"] == {"default": {"shards": SHARDS, "free": 0}}
        assert data["record"]["partitions"] == 16
        assert data["remarks"] == []
        (runner,) = data["runners"]
        assert runner["state"] == "serving"
        assert runner["shards"] == SHARDS
        assert runner["member"]["runner_id"] == first.runner_id
        assert "account" in runner["member"]["serves"]["default"]
        assert sender.runner_id  # one that only sends is no member


async def test_what_is_left_behind_is_told(rck: Rck, valkey: RedisServer) -> None:
    """Leases without a member, shards without an owner, an owner without a fence of its own."""
    async with joined(rck):
        pass
    keyspace = Keyspace(rck.variables["RCK_NAMESPACE"], 16)
    for number in (0, 1):
        valkey.call("SET", keyspace.lease(ShardId("default", number)), "ghost", "PX", 60_000)
    valkey.call("DEL", keyspace.fence(ShardId("default", 1)))
    out = (await rck("status")).out
    assert f"0 runners · 2 of {SHARDS} shards owned" in out
    assert "10 shards: free" in out
    assert "1 shards: no fence" in out
    ghost = next(line for line in out.splitlines() if line.startswith("ghost"))
    assert ghost.split()[3:5] == ["gone", "2"]
    unusual = (await rck("shards", "--unusual", "--owner", "gho", "--json")).data
    assert [item["shard"] for item in unusual] == ["default:0", "default:1"]
    assert [item["fence"] for item in unusual] == [1, None]
    assert unusual[0]["remark"].startswith("fence of ")


async def test_looking_changes_nothing(rck: Rck, valkey: RedisServer) -> None:
    """Not even members whose time is over are taken out: that is the runners' part."""
    async with joined(rck):
        pass
    keyspace = Keyspace(rck.variables["RCK_NAMESPACE"], 16)
    for words in (
        ("HSET", keyspace.members, "late", '{"runner_id":"late"}'),
        ("ZADD", keyspace.alive, 1, "late"),
        ("SET", keyspace.version, 7),
    ):
        valkey.call(*words)
        valkey.call("PEXPIRE", words[1], 60_000)
    before = valkey.call("INFO", "commandstats")
    assert (await rck("status", "--json")).data["runners"] == []
    await rck("shards")
    assert valkey.call("HKEYS", keyspace.members) == ["late"]
    assert valkey.call("GET", keyspace.version) == "7"
    written = {"cmdstat_hdel", "cmdstat_zrem", "cmdstat_incr", "cmdstat_pexpire", "cmdstat_set"}
    assert _counts(before, written) == _counts(valkey.call("INFO", "commandstats"), written)


def _counts(info: object, names: set[str]) -> dict[str, str]:
    pairs = (line.partition(":") for line in str(info).splitlines())
    return {name: rest.partition(",")[0] for name, _, rest in pairs if name in names}


async def test_shards_with_owners_and_fences(rck: Rck) -> None:
    async with joined(rck) as first, joined(rck) as second:
        data = (await rck("shards", "--json")).data
        assert [item["shard"] for item in data] == [f"default:{number}" for number in range(SHARDS)]
        assert {item["owner"] for item in data} <= {first.runner_id, second.runner_id}
        assert all(item["fence"] >= 1 and item["remark"] == "" for item in data)
        own = (await rck("shards", "--owner", second.runner_id)).out.splitlines()
        assert own[0].split() == ["shard", "owner", "fence", "remark"]
        assert len(own) == 1 + sum(item["owner"] == second.runner_id for item in data)
        assert (await rck("shards", "--group", "other", "--json")).data == []


async def test_every_server(redis_server: RedisServer, sqlite_url: str, namespace: str) -> None:
    rck = Rck({"RCK_REDIS": redis_server.url, "RCK_DATABASE": sqlite_url, "RCK_NAMESPACE": namespace})
    async with joined(rck):
        assert (await rck("status", "--json")).data["groups"]["default"]["free"] == 0


async def test_lease_nodes_come_from_the_record(rck: Rck) -> None:
    with RedisServer.start() as one, RedisServer.start() as two, RedisServer.start() as three:
        nodes = [server.url for server in (one, two, three)]
        async with joined(rck, lease=LeaseSettings(ttl=timedelta(seconds=1), nodes=nodes)) as cluster:
            assert [node["owner"] for node in (await rck("shards", "--json")).data] == [
                cluster.runner_id
            ] * SHARDS
            one.kill()
            assert (await rck("status", "--json")).data["groups"]["default"]["free"] == 0
            two.kill()
            answer = await rck("status")
            assert answer.code == 2
            assert "2 of 3 lease nodes do not answer" in answer.err


async def test_lease_nodes_with_a_password(rck: Rck) -> None:
    """The record has no passwords: they come from the variable."""
    with RedisServer.start(password="s3cret") as server:
        async with joined(rck, lease=LeaseSettings(ttl=timedelta(seconds=1), nodes=[server.url])) as cluster:
            answer = await rck("shards")
            assert answer.code == 2
            assert "NOAUTH" in answer.err
            (owner,) = {
                item["owner"] for item in (await rck("shards", "--json", RCK_LEASE_NODES=server.url)).data
            }
            assert owner == cluster.runner_id


@pytest.mark.parametrize("command", ["status", "shards"])
async def test_nobody_has_joined(rck: Rck, command: str) -> None:
    answer = await rck(command)
    assert (answer.code, answer.out) == (2, "")
    assert "nobody has joined namespace" in answer.err
    told = await rck(command, "--json")
    assert (told.code, list(told.data)) == (2, ["error"])


# --- Again and again ---


async def test_watching_in_json_is_a_line_a_look(rck: Rck) -> None:
    async with joined(rck):
        process = subprocess.Popen(
            [*COMMAND, "status", "--watch", "--every", "0.1", "--json"],
            env=rck.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            lines = [await anyio.to_thread.run_sync(process.stdout.readline) for _ in range(3)]
            assert [json.loads(line)["groups"]["default"]["free"] for line in lines] == [0, 0, 0]
            process.send_signal(signal.SIGINT)
            _, errors = await anyio.to_thread.run_sync(process.communicate)
        finally:
            process.kill()
        assert process.returncode == 130
        assert errors == ""


async def test_watching_on_a_terminal(rck: Rck) -> None:
    async with joined(rck) as cluster:
        with in_terminal(rck, "status", "--watch", "--every", "0.1") as (process, terminal):
            await until(
                lambda: terminal.read().count(cluster.runner_id) >= 3, timeout=30, what="three pictures"
            )
            process.send_signal(signal.SIGINT)
            await until(lambda: terminal.read() and process.poll() is not None, what="its end")
        assert "\x1b[" in terminal.seen
        assert "Traceback" not in terminal.seen
        assert process.returncode == 130


async def test_watching_on_a_terminal_goes_on_while_redis_is_away(
    private_valkey: RedisServer, rck: Rck
) -> None:
    rck.variables["RCK_REDIS"] = private_valkey.url
    async with joined(rck) as cluster:
        with in_terminal(rck, "status", "--watch", "--every", "0.1") as (process, terminal):
            await until(lambda: cluster.runner_id in terminal.read(), timeout=30, what="a picture")
            private_valkey.kill()
            await until(
                lambda: "this was seen last; Redis" in terminal.read(), timeout=30, what="the trouble"
            )
            assert "nobody listens at 127.0.0.1" in terminal.seen
            private_valkey.restart()
            since = len(terminal.seen)
            await until(lambda: "of 12 shards owned" in terminal.read()[since:], timeout=30, what="a picture")
            process.send_signal(signal.SIGINT)
            await until(lambda: terminal.read() and process.poll() is not None, what="its end")
        assert "Traceback" not in terminal.seen
