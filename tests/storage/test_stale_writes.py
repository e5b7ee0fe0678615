"""A stale owner commits nothing, and the proof that this is seen: the same run on a kit made wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from redis_cluster_kit.storage import Database
from redis_cluster_kit.testing import ChildProcess, InvariantBrokenError, Mutant, Verdict, mutated_tree
from redis_cluster_kit.testing.checkers import Commit, Install, no_stale_commit

CHILDREN = Path(__file__).with_name("children.py")

OWN_ROW_ONLY = Mutant(
    "SQL write guarded by its own row only",
    "redis_cluster_kit/storage/fenced.py",
    '_HELD = "EXISTS (SELECT 1 FROM register)"',
    '_HELD = """NOT EXISTS (SELECT 1 FROM rck_singleton_state AS own\n'
    '    WHERE own.namespace = :namespace AND own.name = :name AND own.fence > :fence)"""',
    invariant="I1",
    test="test_a_stale_owner_cannot_insert_a_row_that_is_not_there_yet",
)


def _verdict(seen: dict[str, list[dict[str, Any]]]) -> Verdict:
    installs = [Install(**row) for row in seen["installs"]]
    return no_stale_commit(installs, [Commit(**row) for row in seen["commits"]])


def _require(seen: dict[str, list[dict[str, Any]]]) -> None:
    _verdict(seen).require(installs=2, commits=1, ordered_pairs=2, fence_changes=1)
    assert [commit["nonce"] for commit in seen["commits"]] == ["present"]


async def test_a_stale_owner_cannot_insert_a_row_that_is_not_there_yet(
    database: Database, database_url: str, crew: Any, namespace: str
) -> None:
    (seen,) = await crew.act(database_url, [{"do": "stale_first_write", "namespace": namespace}])
    _require(seen)


async def test_a_guard_on_the_written_row_alone_is_caught(
    database: Database, database_url: str, namespace: str, tmp_path: Path
) -> None:
    tree = mutated_tree(OWN_ROW_ONLY, tmp_path / "mutant")
    async with ChildProcess(f"{CHILDREN}:serve", pythonpath=[tree]) as child:
        assert Path((await child.wait_for("started"))["package"]) == tree / "redis_cluster_kit"
        call = {"url": database_url, "ttl": 5, "do": "stale_first_write", "namespace": namespace}
        await child.send(call)
        await child.wait_for("ready")
        await child.send("go")
        seen = (await child.wait_for("done"))["result"]
    with pytest.raises(InvariantBrokenError, match="committed under fence 1 after 2 was installed"):
        _require(seen)
    assert _verdict(seen).invariants == {OWN_ROW_ONLY.invariant}
    assert OWN_ROW_ONLY.test in globals()
