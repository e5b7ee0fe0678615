"""The page of dependencies names every requirement as it is asked for, and why."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "dependencies.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
GROUPS: dict[str, list[str]] = PROJECT["dependency-groups"]


@pytest.mark.parametrize(
    "requirement", PROJECT["project"]["dependencies"] + PROJECT["build-system"]["requires"]
)
def test_what_is_always_needed_has_its_reason(requirement: str) -> None:
    assert f"`{requirement}`" in PAGE


@pytest.mark.parametrize("name", EXTRAS)
def test_each_extra_has_its_reason(name: str) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |")]
    assert rows
    if name != "all":
        assert all(any(f"`{requirement}`" in row for row in rows) for requirement in EXTRAS[name])


def test_all_is_all_of_them() -> None:
    (everything,) = EXTRAS["all"]
    named = re.fullmatch(r"redis-cluster-kit\[(.*)\]", everything)
    assert named is not None
    assert set(named[1].split(",")) == EXTRAS.keys() - {"all"}


@pytest.mark.parametrize("group", GROUPS)
def test_each_requirement_of_a_group_has_its_reason(group: str) -> None:
    rows = [line for line in PAGE.splitlines() if f"`{group}`" in line.partition(" |")[0]]
    for requirement in GROUPS[group]:
        assert any(f"`{requirement}`" in row for row in rows), f"{group}: {requirement}"


def test_no_requirement_is_named_that_is_not_asked_for() -> None:
    asked = {*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]}
    asked = asked.union(*EXTRAS.values(), *GROUPS.values())
    named = re.findall(r"`([\w-]+(?:\[[\w,]+\])?[><=]=?[^`]*)`", PAGE)
    assert set(named) <= asked
