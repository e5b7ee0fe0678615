"""Mutants are copies with one text made wrong; one that no longer applies is an error, not a silent pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import redis_cluster_kit
from redis_cluster_kit.testing import ChildProcess, Mutant, MutantNoLongerApplies, mutated_tree, patched_text

BOOT = Mutant(
    "a clock that stands still",
    "redis_cluster_kit/clock.py",
    "        return time.clock_gettime(_BOOT_CLOCK)\n",
    "        return 1234.5\n",
)
CHILD = """
from redis_cluster_kit.clock import Clock
from redis_cluster_kit.testing import emit
emit("clock", boot=Clock.boot())
"""


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A small kit beside its scripts, as a checkout has them."""
    package = tmp_path / "checkout" / "redis_cluster_kit"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__pycache__" / "x.pyc").write_bytes(b"")
    (package / "fences.py").write_text("def newer(a: int, b: int) -> bool:\n    return a > b\n")
    lua = package.parent / "lua" / "lease"
    lua.mkdir(parents=True)
    (lua / "install.lua").write_text("if fence >= known then\n  return 'fenced'\nend\nreturn 'ok'\n")
    return package


async def test_a_child_runs_the_mutant_and_the_control_does_not(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    mutant = mutated_tree(BOOT, tmp_path / "mutant")
    control = mutated_tree(None, tmp_path / "control")
    boots: list[float] = []
    for tree in (mutant, control):
        async with ChildProcess(str(script), pythonpath=[tree]) as child:
            started = await child.wait_for("started")
            assert Path(started["package"]) == tree / "redis_cluster_kit"
            boots.append((await child.wait_for("clock"))["boot"])
            await child.wait()
    assert boots[0] == 1234.5 != boots[1]
    source = Path(redis_cluster_kit.__file__).parent / "clock.py"
    assert BOOT.old in source.read_text()


def test_a_script_is_patched_beside_the_package(kit: Path, tmp_path: Path) -> None:
    mutant = Mutant("equal fences pass", "lua/lease/install.lua", "fence >= known", "fence > known", "I1")
    tree = mutated_tree(mutant, tmp_path / "tree", package=kit)
    assert (tree / "lua/lease/install.lua").read_text().startswith("if fence > known then")
    assert (tree / "redis_cluster_kit/fences.py").read_text() == (kit / "fences.py").read_text()
    assert not (tree / "redis_cluster_kit/lua").exists()
    assert not list(tree.rglob("__pycache__"))
    assert "fence >= known" in (kit.parent / "lua/lease/install.lua").read_text()


def test_scripts_inside_an_installed_package_are_put_beside_it(kit: Path, tmp_path: Path) -> None:
    (kit.parent / "lua").rename(kit / "lua")
    mutant = Mutant("equal fences pass", "lua/lease/install.lua", "fence >= known", "fence > known")
    tree = mutated_tree(mutant, tmp_path / "tree", package=kit)
    assert "fence > known" in (tree / "lua/lease/install.lua").read_text()
    assert not (tree / "redis_cluster_kit/lua").exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"old": "return a >= b"}, "found it 0 times"),
        ({"old": "a"}, r"found it \d times"),
        ({"old": ""}, "found it 0 times"),
        ({"new": "return a > b"}, "changes nothing"),
        ({"new": "return a > > b"}, "not Python"),
        ({"file": "redis_cluster_kit/gone.py"}, "no such file"),
    ],
)
def test_a_mutant_that_no_longer_applies_says_why(
    kit: Path, tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    good = Mutant("greater or equal", "redis_cluster_kit/fences.py", "return a > b", "return a >= b")
    mutated_tree(good, tmp_path / "good", package=kit)
    with pytest.raises(MutantNoLongerApplies, match=reason) as caught:
        mutated_tree(replace(good, **change), tmp_path / "bad", package=kit)
    assert "greater or equal" in str(caught.value)
    assert caught.value.mutant.name == good.name


def test_only_the_kits_own_files_can_be_mutated(kit: Path, tmp_path: Path) -> None:
    for file in ("tests/conftest.py", "redis_cluster_kit/../outside.py", "/etc/hostname"):
        with pytest.raises(ValueError, match="expected a file below"):
            mutated_tree(Mutant("m", file, "a", "b"), tmp_path / file.replace("/", "_"), package=kit)


def test_a_text_is_patched_in_one_place() -> None:
    assert patched_text(Mutant("m", "lua/x.lua", "b", "x"), "abc") == "axc"
    with pytest.raises(MutantNoLongerApplies, match="found it 2 times"):
        patched_text(Mutant("m", "lua/x.lua", "b", "x"), "abcb")
