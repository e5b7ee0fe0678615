"""Copies of the kit with one line made wrong, to prove that a test sees what it claims to see.

A mutant is a piece of a shipped `.lua` or `.py` text and what to put in its place. It is applied to a
copy, never to the kit itself; a piece that is no longer there, or there twice, is an error.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import redis_cluster_kit

_PACKAGE = "redis_cluster_kit"


class MutantNoLongerApplies(Exception):  # noqa: N818 - says what happened, and is part of the interface
    """The text a mutant replaces has changed: change the mutant too, or its test proves nothing."""

    def __init__(self, mutant: Mutant, reason: str) -> None:
        super().__init__(f"mutant {mutant.name!r} of {mutant.file}: {reason}")
        self.mutant = mutant


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong line, and which invariant and test must catch it."""

    name: str
    file: str
    """`lua/…/x.lua` or `redis_cluster_kit/…/x.py`."""
    old: str
    new: str
    invariant: str = ""
    test: str = ""


def patched_text(mutant: Mutant, text: str) -> str:
    """Return the text with the mutant's piece replaced: there exactly once, and valid Python after it."""
    found = text.count(mutant.old) if mutant.old else 0
    if found != 1:
        raise MutantNoLongerApplies(mutant, f"expected {mutant.old!r} once, found it {found} times")
    if mutant.old == mutant.new:
        raise MutantNoLongerApplies(mutant, "it changes nothing")
    patched = text.replace(mutant.old, mutant.new)
    if mutant.file.endswith(".py"):
        try:
            compile(patched, mutant.file, "exec")
        except SyntaxError as error:  # every test would "catch" it
            raise MutantNoLongerApplies(mutant, f"what it leaves is not Python: {error}") from error
    return patched


def mutated_tree(mutant: Mutant | None, folder: Path | str, *, package: Path | None = None) -> Path:
    """Copy the kit and its scripts into a folder, apply the mutant, return the folder: for `pythonpath`.

    None copies it unchanged: the control that must pass where the mutant fails. `package` is another
    kit's folder to copy, by default the one that is imported.
    """
    source = package or Path(redis_cluster_kit.__file__).parent
    root = Path(folder)
    packaged_lua = source / "lua"
    lua = packaged_lua if packaged_lua.is_dir() else source.parent / "lua"
    shutil.copytree(source, root / _PACKAGE, ignore=lambda at, _: _left_out(Path(at), source))
    if lua.is_dir():
        shutil.copytree(lua, root / "lua")
    if mutant is not None:
        target = _target(mutant, root)
        target.write_text(patched_text(mutant, target.read_text()))
    return root


def _left_out(folder: Path, source: Path) -> set[str]:
    return {"__pycache__", "lua"} if folder == source else {"__pycache__"}


def _target(mutant: Mutant, root: Path) -> Path:
    parts = PurePosixPath(mutant.file).parts
    if parts[:1] not in (("lua",), (_PACKAGE,)) or ".." in parts:
        raise ValueError(f"expected a file below lua/ or {_PACKAGE}/, got {mutant.file!r}")
    target = root / mutant.file
    if not target.is_file():
        raise MutantNoLongerApplies(mutant, "there is no such file")
    return target
