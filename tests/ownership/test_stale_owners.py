"""A stale owner commits nothing in Redis: five attacks, and for each the wrong line that lets it through."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import ChildProcess, InvariantBrokenError, Mutant, mutated_tree

from .attacks import ATTACKS, Rows, judge, run

PROGRAM = f"{Path(__file__).with_name('attacks.py')}:main"
CHECK = "if stored[1] ~= fence or stored[2] ~= nonce then"

MUTANTS = [
    Mutant(
        "fence check removed",
        "lua/include/fence.lua",
        CHECK,
        "if false then",
        invariant="I1",
        test="write_after_a_newer_install",
    ),
    Mutant(
        ">= for > at install",
        "lua/fence/install.lua",
        "elseif stored[1] and not is_newer(shard.number, stored[1]) then",
        "elseif stored[1] and is_newer(stored[1], shard.number) then",
        invariant="I1",
        test="install_an_equal_fence",
    ),
    Mutant(
        "a write that accepts a higher fence without install",
        "lua/include/fence.lua",
        CHECK,
        "if is_newer(stored[1], fence) or (stored[1] == fence and stored[2] ~= nonce) then",
        invariant="I1",
        test="write_under_a_fence_not_installed",
    ),
    Mutant(
        "fence deleted on release",
        "lua/fence/close.lua",
        "redis.call('HSET', shard.fence, 'e', shard.number)",
        "redis.call('DEL', shard.fence)",
        invariant="I1",
        test="install_late_after_a_release",
    ),
    Mutant(
        "install after read",
        "redis_cluster_kit/ownership/fences.py",
        "in (await self._keys.install(fences)).items():",
        "in {shard: Outcome('installed', ()) for shard in fences}.items():",
        invariant="I8",
        test="write_between_read_and_install",
    ),
]

LOOKED_AT = {
    "write_after_a_newer_install": {"commits": 2, "ordered_pairs": 3, "fence_changes": 1},
    "install_an_equal_fence": {"commits": 2, "ordered_pairs": 3, "fence_changes": 1},
    "write_under_a_fence_not_installed": {"commits": 1, "ordered_pairs": 2, "fence_changes": 1},
    "install_late_after_a_release": {"commits": 1, "ordered_pairs": 1},
    "write_between_read_and_install": {"commits": 2, "loads": 1, "compared": 1},
}


def require(attack: str, rows: Rows) -> None:
    judge(rows).require(**LOOKED_AT[attack])


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_stale_owner_commits_nothing(
    attack: str, valkey: RedisServer, sqlite_url: str, namespace: str
) -> None:
    require(attack, await run(attack, valkey.url, sqlite_url, namespace))


async def in_a_child(tree: Path, valkey: RedisServer, database: str, namespace: str) -> dict[str, Rows]:
    """Run every attack on the kit in that folder."""
    options = {
        "attacks": list(ATTACKS),
        "redis": valkey.url,
        "database": database,
        "namespace": namespace,
    }
    async with ChildProcess(PROGRAM, json.dumps(options), pythonpath=[tree]) as child:
        started = await child.wait_for("started")
        assert Path(started["package"]) == tree / "redis_cluster_kit"
        return {
            attack: (await child.wait_for("done", attack=attack, timeout=30))["rows"] for attack in ATTACKS
        }


async def test_the_unchanged_copy_withstands_every_attack(
    valkey: RedisServer, sqlite_url: str, namespace: str, tmp_path: Path
) -> None:
    seen = await in_a_child(mutated_tree(None, tmp_path / "control"), valkey, sqlite_url, namespace)
    for attack, rows in seen.items():
        require(attack, rows)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
async def test_one_wrong_line_is_caught_by_its_attack(
    mutant: Mutant, valkey: RedisServer, sqlite_url: str, namespace: str, tmp_path: Path
) -> None:
    seen = await in_a_child(mutated_tree(mutant, tmp_path / "mutant"), valkey, sqlite_url, namespace)
    with pytest.raises(InvariantBrokenError):
        require(mutant.test, seen[mutant.test])
    assert mutant.invariant in judge(seen[mutant.test]).invariants
