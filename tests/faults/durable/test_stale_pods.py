"""A pod that was stopped inside a step for longer than its lease: what the step returns then never stands."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.settings import DatabaseSettings
from redis_cluster_kit.storage import Database
from redis_cluster_kit.testing import ChildProcess, Mutant, mutated_tree, until

pytestmark = pytest.mark.faults

PROGRAM = f"{Path(__file__).with_name('stale_pod.py')}:main"
KINDS = ("entity", "singleton")
UNFENCED = Mutant(
    "a step is recorded by whoever comes",
    "redis_cluster_kit/storage/journal.py",
    "WHERE {held} AND EXISTS (SELECT 1 FROM open)",
    "WHERE ({held} OR 1 = 1) AND EXISTS (SELECT 1 FROM open)",
)


class Scene:
    def __init__(self, redis: str, database: str, namespace: str) -> None:
        self._options = {"redis": redis, "database": database, "namespace": namespace}

    def pod(self, name: str, *, blind: bool = False, kit: Path | None = None) -> ChildProcess:
        given = json.dumps(self._options | {"name": name, "blind": blind})
        return ChildProcess(PROGRAM, given, name=name, pythonpath=[] if kit is None else [kit])

    async def recorded(self) -> int:
        """Return how many steps the database holds."""
        ttl = timedelta(seconds=5)
        async with Database(self._options["database"], DatabaseSettings(), ttl=ttl) as database:

            def count(connection: Any) -> int:
                return int(connection.execute(text("SELECT count(*) FROM rck_step")).scalar() or 0)

            return await database.read(count, timeout=5)


async def _play(scene: Scene, *, blind: bool, kit: Path | None = None) -> None:
    """Stop the first pod inside its steps, wake it when the second is inside of them, and let that end."""
    async with scene.pod("first", blind=blind, kit=kit) as first:
        for kind in KINDS:
            await first.wait_for("inside", kind=kind)
        async with scene.pod("second", kit=kit) as second:
            await second.wait_for("joined")
            await first.send("stop")
            await until(lambda: first.state == "T", what="the first is stopped")
            for kind in KINDS:
                await second.wait_for("inside", kind=kind)
            assert first.state == "T"
            await first.wake()
            for kind in KINDS:
                tried = await first.wait_for("tried", kind=kind)
                assert tried["refused_by"] == ("database" if blind else "this runner")
            assert await scene.recorded() == 0
            await second.send("go")
            done = await second.wait_for("done")
            assert (done["entity"], done["singleton"]) == ("second", "second")


async def test_what_a_stale_pods_step_returned_never_stands(
    valkey: RedisServer, database_url: str, namespace: str
) -> None:
    """It has forgotten its lease: the database refuses, by the fence it holds."""
    await _play(Scene(valkey.url, database_url, namespace), blind=True)


async def test_a_stale_pod_that_knows_its_lease_does_not_even_try(
    valkey: RedisServer, sqlite_url: str, namespace: str
) -> None:
    await _play(Scene(valkey.url, sqlite_url, namespace), blind=False)


async def test_an_unfenced_record_is_noticed(
    valkey: RedisServer, sqlite_url: str, namespace: str, tmp_path: Path
) -> None:
    kit = mutated_tree(UNFENCED, tmp_path / "kit")
    with pytest.raises(AssertionError, match="nobody"):
        await _play(Scene(valkey.url, sqlite_url, namespace), blind=True, kit=kit)
