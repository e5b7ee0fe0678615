"""`rck migrate`: for services that may not create tables."""

from __future__ import annotations

import sqlite3

import pytest

from redis_cluster_kit import Cluster, DatabaseSettings, JoinRefusedError, Settings
from redis_cluster_kit.storage import SCHEMA_VERSION, pending_steps
from redis_cluster_kit.testing import until

from .conftest import Rck
from .terminal import in_terminal


async def test_a_fresh_database_is_brought_up(database_url: str) -> None:
    rck = Rck({"RCK_DATABASE": database_url})
    check = await rck("migrate", "--check")
    assert check.code == 1
    assert f"version 0, this release needs {SCHEMA_VERSION}:" in check.out
    done = await rck("migrate", "--yes", "--json")
    assert done.code == 0
    assert done.data == {
        "was": 0,
        "now": SCHEMA_VERSION,
        "release": SCHEMA_VERSION,
        "steps": pending_steps(0),
    }
    again = await rck("migrate", "--check")
    assert again.code == 0
    assert "nothing to do" in again.out
    assert (await rck("migrate", "--check", "--json")).data["steps"] == []


async def test_a_service_without_the_right_joins_afterwards(rck: Rck) -> None:
    settings = Settings(database=DatabaseSettings(create_tables=False))
    variables = rck.variables
    cluster = Cluster(
        variables["RCK_REDIS"],
        variables["RCK_DATABASE"],
        namespace=variables["RCK_NAMESPACE"],
        settings=settings,
        hosting=False,
    )
    with pytest.raises(JoinRefusedError, match="rck migrate"):
        await cluster.__aenter__()
    assert (await rck("migrate", "--yes")).code == 0
    async with cluster:
        assert cluster.runner_id


async def test_nothing_is_changed_unasked(rck: Rck) -> None:
    answer = await rck("migrate")
    assert answer.code == 2
    assert "add --yes" in answer.err
    assert (await rck("migrate", "--check")).code == 1


@pytest.mark.parametrize(("reply", "code", "version"), [("y\n", 0, SCHEMA_VERSION), ("n\n", 2, 0)])
async def test_it_asks_at_a_terminal(rck: Rck, reply: str, code: int, version: int) -> None:
    with in_terminal(rck, "migrate") as (process, terminal):
        await until(lambda: "[y/N]" in terminal.read(), timeout=30, what="the question")
        terminal.type(reply)
        await until(lambda: terminal.read() and process.poll() is not None, timeout=30, what="its end")
    assert process.returncode == code, terminal.seen
    assert (await rck("migrate", "--check", "--json")).data["was"] == version


async def test_tables_of_a_newer_release_are_left_alone(rck: Rck) -> None:
    await rck("migrate", "--yes")
    with sqlite3.connect(rck.variables["RCK_DATABASE"].partition(":///")[2]) as database:
        database.execute("INSERT INTO rck_schema (version) VALUES (99)")
    answer = await rck("migrate", "--yes")
    assert answer.code == 2
    assert "newer release" in answer.err
