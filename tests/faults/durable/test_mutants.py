"""Rules of durable steps, taken out of a copy of the kit: the judges of the killed pods must notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import Mutant, mutated_tree
from tests.faults.durable.judges import judge_coordinator, judge_order
from tests.faults.durable.scenes import Scene, Stem, play

pytestmark = pytest.mark.faults

MUTANTS = [
    Mutant(
        "no step is remembered",
        "redis_cluster_kit/durable/execution.py",
        'known = self._recall("step", name, input)',
        "known: Entry | None = None",
        test="before Parking.park #1",
    ),
    Mutant(
        "a journal is not read again",
        "redis_cluster_kit/durable/execution.py",
        "for entry in await self._journal.open():",
        "await self._journal.open()\n        for entry in ():",
        test="after Journal.record fetch #2",
    ),
    Mutant(
        "what comes after a state write is the same execution",
        "redis_cluster_kit/storage/singleton_executions.py",
        'return f"{version}.{self.number}"',
        'return f"0.{self.number}"',
        test="after SqlState.write #1",
    ),
]


async def _judged(valkey: RedisServer, folder: Path, namespace: str, tree: Path, mark: str) -> None:
    name = "coordinator" if "fetch" in mark or "SqlState" in mark else "orders"
    options = {"play": name, "redis": valkey.url, "is_approved": True}
    async with Stem.start(options, folder, namespace, kit=tree) as stem:
        scene: Scene = await play(stem, mark)
    judge_coordinator(scene) if name == "coordinator" else judge_order(scene, is_approved=True)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
async def test_a_mutant_is_noticed(
    valkey: RedisServer, tmp_path: Path, namespace: str, mutant: Mutant
) -> None:
    tree = mutated_tree(mutant, tmp_path / "kit")
    with pytest.raises(AssertionError):
        await _judged(valkey, tmp_path, namespace, tree, mutant.test)


@pytest.mark.parametrize("mark", sorted({mutant.test for mutant in MUTANTS}))
async def test_the_kit_as_it_is_passes_there(
    valkey: RedisServer, tmp_path: Path, namespace: str, mark: str
) -> None:
    await _judged(valkey, tmp_path, namespace, mutated_tree(None, tmp_path / "kit"), mark)
