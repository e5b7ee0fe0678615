"""Stores shared by real processes: no change is lost, and a killed writer leaves whole values and no lock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from redis_cluster_kit.errors import Execution, PersistenceFailedError
from redis_cluster_kit.storage.key_value import FileStore, RedisStore, SqlStore
from redis_cluster_kit.testing import ChildProcess, Proxy, command, statement

CHILDREN = Path(__file__).with_name("children.py")
EIGHT = 8
ROUNDS = {"file": 10, "redis": 50, "sqlite": 10, "postgres": 10}


@pytest.fixture(scope="session")
async def eight() -> AsyncIterator[list[ChildProcess]]:
    """Eight other processes, started once."""
    async with AsyncExitStack() as stack:
        members = [ChildProcess(f"{CHILDREN}:serve", name=f"eight-{number}") for number in range(EIGHT)]
        await asyncio.gather(*(stack.enter_async_context(member) for member in members))
        yield members


@pytest.mark.parametrize("kind", ROUNDS)
async def test_modify_is_atomic_across_eight_processes(
    kind: str, eight: list[ChildProcess], request: pytest.FixtureRequest, tmp_path: Path, namespace: str
) -> None:
    where = str(tmp_path / "values")
    if kind == "redis":
        where = request.getfixturevalue("valkey").url
    elif kind != "file":
        where = request.getfixturevalue(f"{kind}_url")
    word = {"kind": kind, "where": where, "namespace": namespace, "rounds": ROUNDS[kind]}
    for child in eight:
        await child.send(word)
    for child in eight:
        await child.wait_for("ready", timeout=60)
    for child in eight:
        await child.send("go")
    done = [await child.wait_for("done", timeout=120) for child in eight]
    made = sorted(number for event in done for number in event["made"])
    assert made == list(range(1, EIGHT * ROUNDS[kind] + 1)), "every change saw the one before it"
    assert sum(event["overtaken"] for event in done) > 0, "the processes never met"


# --- Files and SIGKILL ---


@pytest.mark.faults
@pytest.mark.parametrize("point", ["half written", "written", "on the disk", "replaced"])
async def test_a_writer_killed_in_the_middle_of_a_write(point: str, tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.set("a", b"old" * 100_000)
    async with ChildProcess(f"{CHILDREN}:stop_while_writing", str(tmp_path), point) as child:
        await child.wait_for("inside", timeout=30)
        draft = tmp_path / ".writing"
        if point != "replaced":  # the fault is where it should be
            assert draft.stat().st_size == (300_002 // 2 if point == "half written" else 300_002)
        impatient = FileStore(tmp_path, timeout=0.2)
        with pytest.raises(PersistenceFailedError, match="held the lock") as refused:
            await impatient.set("b", b"")
        assert refused.value.execution is Execution.NOT_EXECUTED
        expected = (b"new" if point == "replaced" else b"old") * 100_000
        assert await store.get("a") == expected, "readers wait for nobody"
        await child.kill()
    assert await store.get("a") == expected
    assert await store.size() == 1
    await store.set("b", b"next")
    assert await store.modify("a", lambda value: (value or b"")[:3]) == expected[:3]
    assert (await store.get("b"), await store.size()) == (b"next", 2)


@pytest.mark.faults
async def test_writers_killed_at_any_moment_leave_whole_values(tmp_path: Path) -> None:
    store = FileStore(tmp_path, timeout=30.0)
    for _ in range(3):
        async with ChildProcess(f"{CHILDREN}:write_for_ever", str(tmp_path)) as child:
            await child.wait_for("writing", timeout=30)
            await asyncio.sleep(random.uniform(0, 0.02))
            await child.kill()
        value = await store.get("a")
        assert value is not None
        assert (len(value), len(set(value))) == (200_000, 1)
        assert await store.modify("a", lambda old: old) == value
        await store.set("b", b"the lock is free")


async def test_a_folder_that_cannot_be_written_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = FileStore(tmp_path / "file" / "folder")
    with pytest.raises(PersistenceFailedError, match="Not a directory") as refused:
        await store.set("a", b"")
    assert (refused.value.store, refused.value.execution) == ("file", Execution.NOT_EXECUTED)


# --- Lost replies ---


@pytest.mark.faults
async def test_a_lost_reply_of_redis_is_reported_and_not_repeated(valkey: Any, namespace: str) -> None:
    """A repeat could undo what somebody else wrote in between."""
    async with (
        Proxy.to("127.0.0.1", valkey.port) as proxy,
        RedisStore.open(proxy.url(valkey.url), namespace=namespace) as store,
        RedisStore.open(valkey.url, namespace=namespace) as other,
    ):
        await store.modify("n", lambda _: b"1")
        loss = proxy.lose_reply(command("EVALSHA"))
        with pytest.raises(PersistenceFailedError) as unknown:
            await store.modify("n", lambda value: (value or b"") + b"2")
        loss.assert_fired(1)
        assert unknown.value.execution is Execution.UNKNOWN
        assert await other.get("n") == b"12", "it ran once"
        loss = proxy.lose_reply(command("HSET"))
        with pytest.raises(PersistenceFailedError) as unknown:
            await store.set("n", b"3")
        loss.assert_fired(1)
        assert unknown.value.execution is Execution.UNKNOWN
        assert await store.get("n") == b"3"


@pytest.mark.faults
async def test_a_lost_reply_of_the_database_is_reported_and_not_repeated(
    private_postgres: Any, namespace: str
) -> None:
    url = private_postgres.create_database("kv")
    async with (
        SqlStore.open(url, namespace=namespace) as other,
        Proxy.to("127.0.0.1", private_postgres.port, speaks="postgres") as proxy,
        SqlStore.open(proxy.url(url), namespace=namespace) as store,
    ):
        await store.modify("n", lambda _: b"1")
        loss = proxy.lose_reply(statement("UPDATE kv_store"))
        with pytest.raises(PersistenceFailedError) as unknown:
            await store.modify("n", lambda value: (value or b"") + b"2")
        loss.assert_fired(1)
        assert unknown.value.execution is Execution.UNKNOWN
        assert await other.get("n") == b"12", "it ran once"
