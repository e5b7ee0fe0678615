"""`rck doctor` on real servers: each point with the verdict it deserves, and the fault that makes it so."""

from __future__ import annotations

import shutil
import sqlite3
from datetime import timedelta
from typing import Any

import pytest

from redis_cluster_kit import Entity, LeaseSettings, rpc
from redis_cluster_kit.embedded import PostgresServer, RedisServer
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.redis_access import Keyspace
from redis_cluster_kit.settings import DatabaseSettings
from redis_cluster_kit.storage import Database, inspect_database

from .conftest import Answer, Rck, joined

ALLOWED = ("+@read", "+@write", "+@stream", "+@scripting", "+@connection", "-@dangerous", "+time", "+info")


@pytest.fixture
def own(private_valkey: RedisServer, sqlite_url: str, namespace: str) -> Rck:
    """`rck` for a server that the test may spoil."""
    return Rck({"RCK_REDIS": private_valkey.url, "RCK_DATABASE": sqlite_url, "RCK_NAMESPACE": namespace})


def sqlite_file(rck: Rck) -> str:
    return rck.variables["RCK_DATABASE"].partition(":///")[2]


async def points(rck: Rck, **variables: str) -> tuple[Answer, dict[str, dict[str, Any]]]:
    """Ask the doctor; return its answer and its findings by check (the last of each)."""
    answer = await rck("doctor", "--json", **variables)
    data = answer.data
    assert set(data) == {"problems", "warnings", "findings"}
    for finding in data["findings"]:
        assert set(finding) == {"check", "where", "verdict", "found", "advice"}
        assert finding["verdict"] == "ok" or finding["advice"]
    for verdict, count in (("problem", data["problems"]), ("warning", data["warnings"])):
        assert count == sum(finding["verdict"] == verdict for finding in data["findings"])
    return answer, {finding["check"]: finding for finding in data["findings"]}


# --- All is well ---


async def test_a_cluster_in_good_health(redis_server: Any, database_url: str, namespace: str) -> None:
    rck = Rck({"RCK_REDIS": redis_server.url, "RCK_DATABASE": database_url, "RCK_NAMESPACE": namespace})
    async with joined(rck):
        answer, found = await points(rck)
    verdicts = {check: finding["verdict"] for check, finding in found.items()}
    # The embedded PostgreSQL does not sync, the shared servers keep nothing over a restart.
    unsynced = found["durable commits"]["found"] == "fsync off"
    assert answer.code == int(unsynced)
    warned = {"persistence", *(["durable commits"] if unsynced else [])}
    assert {check for check, verdict in verdicts.items() if verdict == "ok"} >= {
        *("inspection", "version", "eviction", "clock", "latency", "rights", "record", "lease nodes"),
        *("shards", "fences", "database", "schema"),
    }
    assert {check for check, verdict in verdicts.items() if verdict != "ok"} <= warned


async def test_in_words(own: Rck, private_valkey: RedisServer) -> None:
    private_valkey.call("CONFIG", "SET", "appendonly", "yes")
    private_valkey.call("CONFIG", "SET", "stream-node-max-bytes", "4096")
    answer = await own("doctor")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert any(line.startswith("ok       eviction") and line.endswith("noeviction") for line in lines)
    place = next(number for number, line in enumerate(lines) if "stream-node-max-bytes 4096" in line)
    assert "1.3 KB: CONFIG SET stream-node-max-bytes 512" in lines[place + 1]
    assert lines[-1].endswith("checks; problems: 0, warnings: 1")  # no tables yet
    private_valkey.call("CONFIG", "SET", "stream-node-max-bytes", "512")
    assert "1.3 KB" not in (await own("doctor")).out


# --- Redis ---


async def test_eviction_is_a_problem(own: Rck, private_valkey: RedisServer) -> None:
    private_valkey.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    answer, found = await points(own)
    assert answer.code == 1
    assert found["eviction"]["verdict"] == "problem"
    assert found["eviction"]["found"] == "allkeys-lru"
    assert "noeviction" in found["eviction"]["advice"]


async def test_persistence(own: Rck, private_valkey: RedisServer) -> None:
    assert (await points(own))[1]["persistence"]["verdict"] == "warning"
    private_valkey.call("CONFIG", "SET", "appendonly", "yes")
    private_valkey.call("CONFIG", "SET", "appendfsync", "everysec")
    assert (await points(own))[1]["persistence"]["verdict"] == "ok"
    answer, found = await points(own, RCK_DATABASE="")
    assert answer.code == 1
    assert found["persistence"]["verdict"] == "problem"
    assert found["database"]["verdict"] == "warning"
    private_valkey.call("CONFIG", "SET", "appendfsync", "always")
    assert (await points(own, RCK_DATABASE=""))[0].code == 0


@pytest.mark.parametrize("binary", [None, "redis-server"], ids=["valkey", "redis"])
@pytest.mark.parametrize(
    ("taken", "named"),
    [((), ""), (("-hset",), "HSET"), (("-xread",), "XREAD"), (("-eval", "-evalsha"), "scripts")],
    ids=["all", "hset", "xread", "scripts"],
)
async def test_rights(binary: str | None, taken: tuple[str, ...], named: str, namespace: str) -> None:
    if binary is not None and shutil.which(binary) is None:
        pytest.skip(f"no {binary} on the PATH")
    with RedisServer.start(binary=binary) as server:
        server.call(
            "ACL", "SETUSER", "service", "on", ">pw", f"~rck:{{{namespace}:*", *ALLOWED, "+config|get", *taken
        )
        rck = Rck({"RCK_REDIS": f"redis://service:pw@127.0.0.1:{server.port}/0", "RCK_NAMESPACE": namespace})
        _, found = await points(rck)
        rights = found["rights"]
        assert rights["verdict"] == ("problem" if named else "ok")
        assert named in rights["found"]
        assert server.call("DBSIZE") == 0, "the doctor has left a key"


async def test_what_may_not_be_read(private_valkey: RedisServer, namespace: str) -> None:
    private_valkey.call("ACL", "SETUSER", "service", "on", ">pw", "~rck:*", "+@all", "-@dangerous")
    rck = Rck(
        {"RCK_REDIS": f"redis://service:pw@127.0.0.1:{private_valkey.port}", "RCK_NAMESPACE": namespace}
    )
    _, found = await points(rck)
    assert found["inspection"]["verdict"] == "warning"
    assert "+info +config|get" in found["inspection"]["advice"]
    assert found["eviction"]["verdict"] == "warning"


# --- The database ---


async def test_a_database_that_is_not_there(rck: Rck) -> None:
    answer, found = await points(rck, RCK_DATABASE="postgresql+asyncpg://me:pw@127.0.0.1:1/app")
    assert answer.code == 1
    assert found["database"]["verdict"] == "problem"
    assert found["rights"]["verdict"] == "ok"


async def test_tables_of_other_releases(rck: Rck) -> None:
    async with joined(rck):
        pass
    with sqlite3.connect(sqlite_file(rck)) as database:
        database.execute("DELETE FROM rck_schema WHERE version > 1")
    _, found = await points(rck)
    assert found["schema"]["verdict"] == "warning"
    assert "rck migrate" in found["schema"]["advice"]
    with sqlite3.connect(sqlite_file(rck)) as database:
        database.execute("INSERT INTO rck_schema (version) VALUES (99)")
    answer, found = await points(rck)
    assert answer.code == 1
    assert found["schema"]["verdict"] == "problem"


async def test_postgres_that_forgets_or_forbids(
    private_postgres: PostgresServer, valkey: Any, namespace: str
) -> None:
    url = private_postgres.create_database("app")
    rck = Rck({"RCK_REDIS": valkey.url, "RCK_DATABASE": url, "RCK_NAMESPACE": namespace})
    assert (await rck("migrate", "--yes")).code == 0
    _, found = await points(rck)
    assert found["durable commits"]["found"] == "fsync off"  # the embedded one does not sync
    private_postgres.execute("CREATE ROLE reader LOGIN")
    private_postgres.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader", database="app")
    private_postgres.execute("GRANT INSERT, UPDATE, DELETE ON rck_record TO reader", database="app")
    answer, found = await points(rck, RCK_DATABASE=url.replace("postgres@", "reader@"))
    assert answer.code == 1
    refused = found["database rights"]["found"]
    assert "rck_fences: UPDATE" in refused
    assert "rck_record" not in refused
    assert "SELECT" not in refused
    private_postgres.execute("ALTER DATABASE app SET default_transaction_read_only = on")
    assert (await points(rck))[1]["writable"]["verdict"] == "problem"


async def test_synchronous_commit(private_postgres: PostgresServer, valkey: Any, namespace: str) -> None:
    """What the server would give a session, not what the kit makes of its own."""
    url = private_postgres.create_database("app")
    rck = Rck({"RCK_REDIS": valkey.url, "RCK_DATABASE": url, "RCK_NAMESPACE": namespace})
    private_postgres.execute("ALTER DATABASE app SET synchronous_commit = off")
    async with Database(url, DatabaseSettings(), ttl=timedelta(seconds=5)) as database:
        facts = await inspect_database(database, timeout=5)
    assert facts.settings["synchronous_commit"] == "off"
    assert facts.schema_version == 0
    assert (await points(rck))[1]["schema"]["verdict"] == "warning"


# --- The cluster ---


async def test_stores_that_do_not_belong_together(rck: Rck, valkey: RedisServer, tmp_path: Any) -> None:
    async with joined(rck):
        pass
    record = Keyspace(rck.variables["RCK_NAMESPACE"], 16).record
    answer, found = await points(rck, RCK_DATABASE=f"sqlite+aiosqlite:///{tmp_path / 'other.db'}")
    assert found["schema"]["verdict"] == "warning"  # it has no tables, so nothing is compared
    await rck("migrate", "--yes", RCK_DATABASE=f"sqlite+aiosqlite:///{tmp_path / 'other.db'}")
    answer, found = await points(rck, RCK_DATABASE=f"sqlite+aiosqlite:///{tmp_path / 'other.db'}")
    assert answer.code == 1
    assert "another database" in found["record"]["advice"]

    stored = str(valkey.call("GET", record))
    valkey.call("SET", record, stored.replace('"partitions":16', '"partitions":8'))
    answer, found = await points(rck)
    assert answer.code == 1
    assert "partitions: Redis 8, database 16" in found["record"]["found"]

    valkey.call("DEL", record)
    answer, found = await points(rck)
    assert answer.code == 0
    assert found["record"]["verdict"] == "warning"


async def test_a_database_behind_redis(rck: Rck, valkey: RedisServer) -> None:
    """As after an old dump was restored: Redis has fences the register knows nothing of."""
    async with joined(rck):
        pass
    assert (await points(rck))[1]["fences"]["verdict"] == "ok"
    keyspace = Keyspace(rck.variables["RCK_NAMESPACE"], 16)
    valkey.call("HSET", keyspace.fence(ShardId("default", 3)), "f", "72057594037927937")
    answer, found = await points(rck)
    assert answer.code == 1
    assert "1 shards" in found["fences"]["found"]
    assert "default:3" in found["fences"]["found"]


async def test_shards_nobody_owns(rck: Rck, valkey: RedisServer) -> None:
    async with joined(rck):
        pass
    assert (await points(rck))[1]["shards"]["found"] == "no runner is there to own shards"
    keyspace = Keyspace(rck.variables["RCK_NAMESPACE"], 16)
    valkey.call("HSET", keyspace.members, "stuck", '{"runner_id":"stuck","serves":{"default":[]}}')
    valkey.call("ZADD", keyspace.alive, 9_000_000_000_000, "stuck")
    for key in (keyspace.members, keyspace.alive):
        valkey.call("PEXPIRE", key, 600_000)
    answer, found = await points(rck, RCK_LEASE_TTL="500ms")
    assert answer.code == 1
    assert "12 of 12 have no owner" in found["shards"]["found"]


async def test_a_group_nobody_serves_any_more(rck: Rck) -> None:
    class Invoice(Entity[None], name="invoice", shard_group="billing"):
        @rpc
        async def ping(self) -> None: ...

    async with joined(rck, entities=[Invoice]):
        pass
    async with joined(rck):
        answer, found = await points(rck, RCK_LEASE_TTL="500ms")
        assert answer.code == 0
        assert found["shards"]["verdict"] == "warning"
        assert found["shards"]["found"] == "no runner serves group billing"


async def test_runners_whose_types_differ(rck: Rck, valkey: RedisServer) -> None:
    async with joined(rck):
        keyspace = Keyspace(rck.variables["RCK_NAMESPACE"], 16)
        for name in ("a", "b"):
            member = f'{{"runner_id":"{name}","serves":{{"billing":["{name}"]}}}}'
            valkey.call("HSET", keyspace.members, name, member)
            valkey.call("ZADD", keyspace.alive, 9_000_000_000_000, name)
        _, found = await points(rck)
        assert found["types"]["verdict"] == "warning"
        assert "shard_group" in found["types"]["advice"]


async def test_lease_nodes_that_are_down(rck: Rck) -> None:
    with RedisServer.start() as one, RedisServer.start() as two, RedisServer.start() as three:
        lease = LeaseSettings(ttl=timedelta(seconds=1), nodes=[server.url for server in (one, two, three)])
        async with joined(rck, lease=lease):
            three.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            answer, found = await points(rck)
            assert answer.code == 1
            assert found["lease nodes"]["found"] == "3 of 3 answer"
            assert found["eviction"]["where"] == f"127.0.0.1:{three.port}"
            three.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
            one.kill()
            answer, found = await points(rck)
            assert answer.code == 0
            assert found["lease nodes"]["found"] == "2 of 3 answer"
            two.kill()
            answer, found = await points(rck)
            assert answer.code == 1
            assert found["lease nodes"]["verdict"] == "problem"


async def test_no_redis_at_all(own: Rck, private_valkey: RedisServer) -> None:
    private_valkey.kill()
    answer, found = await points(own)
    assert answer.code == 2
    assert found["redis"]["verdict"] == "problem"
    assert found["database"]["verdict"] == "ok"
