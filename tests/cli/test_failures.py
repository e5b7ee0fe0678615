"""What cannot be done is said in a line, with exit code 2, without a traceback and without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from redis_cluster_kit import Entity, rpc
from redis_cluster_kit.embedded import RedisServer

from .conftest import Rck, joined

SECRET = "s3cr3t-of-mine"
LOOKING = ["status", "shards", "singletons", "keys", "doctor"]
IN_GROUPS = [
    ["cron", "list"],
    ["deadletters", "list"],
    ["executions", "list"],
    ["entity", "account", "alice"],
]
NO_REDIS = f"redis://me:{SECRET}@127.0.0.1:1/0"
NO_POSTGRES = f"postgresql+asyncpg://me:{SECRET}@127.0.0.1:1/app"


class Account(Entity[None], name="account"):
    @rpc
    async def ping(self) -> None: ...


@pytest.fixture
def nowhere() -> Rck:
    return Rck({"RCK_REDIS": NO_REDIS, "RCK_DATABASE": NO_POSTGRES, "RCK_NAMESPACE": "nobody"})


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["words", "json"])
@pytest.mark.parametrize("command", [*LOOKING, "migrate"])
async def test_stores_that_are_not_there(nowhere: Rck, command: str, more: list[str]) -> None:
    answer = await nowhere.process(command, *more)
    assert answer.code == 2
    assert "Traceback" not in answer.out + answer.err
    assert SECRET not in answer.out + answer.err
    assert "127.0.0.1" in answer.out + answer.err
    if more and command != "doctor":
        assert "cannot be used" in answer.data["error"]
        assert answer.err == ""


@pytest.mark.parametrize("words", [["status"], *IN_GROUPS], ids=" ".join)
async def test_it_says_in_plain_words_what_to_do(nowhere: Rck, words: list[str]) -> None:
    store, port, variable = ("Redis", 1, "RCK_REDIS or --redis")
    if words[0] == "executions":
        store, variable = "the database", "RCK_DATABASE or --database"
    answer = await nowhere(*words)
    place = "" if store == "the database" else f"cannot connect to 127.0.0.1:{port}: "
    assert answer.err == (
        f"rck {' '.join(words[:2]) if words[-1] == 'list' else words[0]}: {store} cannot be used: {place}"
        f"nobody listens at 127.0.0.1 port {port}; is it running, and is {variable} right?\n"
    )


@pytest.mark.parametrize("words", [["status"], ["shards"], ["singletons"], *IN_GROUPS], ids=" ".join)
async def test_a_namespace_that_nobody_has_joined(rck: Rck, words: list[str]) -> None:
    assert (await rck("migrate", "--yes")).code == 0
    answer = await rck(*words)
    assert answer.code == 2
    assert "nobody has joined namespace" in answer.err
    assert "is RCK_NAMESPACE or --namespace right?" in answer.err
    assert "Traceback" not in answer.err


async def test_a_database_without_tables(rck: Rck) -> None:
    answer = await rck("executions", "list")
    assert answer.code == 2
    assert "rck migrate" in answer.err
    assert len(answer.err.splitlines()) == 1


async def test_a_type_that_nobody_serves(rck: Rck) -> None:
    async with joined(rck, entities=[Account]):
        answer = await rck("entity", "acount", "alice")
        assert answer.code == 2
        assert "no live runner serves 'acount'" in answer.err
        assert "served: account; for others there is --group" in answer.err
        answer = await rck("entity", "account", "alice", "--group", "others")
        assert "no shard group 'others'; it has default" in answer.err


@pytest.mark.parametrize("command", LOOKING)
async def test_a_wrong_password(private_valkey: RedisServer, nowhere: Rck, command: str) -> None:
    private_valkey.call("CONFIG", "SET", "requirepass", "another")
    port = private_valkey.port
    answer = await nowhere(command, RCK_REDIS=f"redis://:{SECRET}@127.0.0.1:{port}/0", RCK_DATABASE="")
    assert answer.code == 2
    assert SECRET not in answer.out + answer.err
    assert "refused AUTH" in answer.out + answer.err
    assert command == "doctor" or "; correct RCK_REDIS or --redis" in answer.err


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"RCK_REDIS": ""}, "Set RCK_REDIS or add --redis"),
        ({"RCK_REDIS": f"http://:{SECRET}@h/"}, "a Redis URL begins with one of"),
        ({"RCK_REDIS": "redis://h", "RCK_NAMESPACE": "a b"}, "namespace"),
        ({"RCK_REDIS": "redis://h", "RCK_LEASE_TLL": "5s"}, "did you mean RCK_LEASE_TTL?"),
        ({"RCK_REDIS": f"redis://:{SECRET}@192.0.2.1/0"}, "rediss://"),
    ],
)
async def test_variables_that_say_nothing_useful(variables: dict[str, str], said: str) -> None:
    for command in LOOKING:
        answer = await Rck(variables)(command)
        assert answer.code == 2
        assert said in answer.out + answer.err
        assert SECRET not in answer.out + answer.err


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "Set RCK_DATABASE or add --database"),
        (f"mysql://me:{SECRET}@h/app", "asynchronous drivers"),
        (f"://{SECRET}", "not a database URL"),
        ("sqlite+aiosqlite:////no/such/folder/x.db", "the database cannot be used"),
    ],
)
async def test_databases_that_are_none(url: str, said: str, tmp_path: Path) -> None:
    answer = await Rck({"RCK_DATABASE": url})("migrate", "--yes")
    assert answer.code == 2
    assert said in answer.err
    assert SECRET not in answer.out + answer.err
