"""What users import: sorted, complete, documented, and every error on the shelf."""

from __future__ import annotations

import enum
import inspect
import re
import types
from pathlib import Path
from typing import Any

import pytest

import redis_cluster_kit
from redis_cluster_kit import KitError, errors

NAMES = redis_cluster_kit.__all__
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "names.md"
INHERITED = {kind.__doc__ for kind in (object, dict, int, Exception, enum.Enum, enum.StrEnum)}


def test_the_shelf_is_sorted_and_complete() -> None:
    modules = {name for name, value in vars(redis_cluster_kit).items() if isinstance(value, types.ModuleType)}
    there = {name for name in vars(redis_cluster_kit) if not name.startswith("_")} - modules
    assert sorted(there) == NAMES


def test_every_error_of_the_kit_is_on_the_shelf() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, KitError) and value.__module__ == errors.__name__
    }
    assert defined - set(NAMES) <= {"ReasonedError", "TransportedError"}


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_a_docstring_of_its_own(name: str) -> None:
    value: Any = getattr(redis_cluster_kit, name)
    if isinstance(value, types.UnionType):
        return
    text = value.__doc__ or ""
    assert text not in INHERITED
    assert not text.startswith(f"{name}("), "that is what a dataclass makes up"
    assert text.strip().endswith((".", ":", "`")) or "\n" in text


@pytest.mark.parametrize(
    "name", [name for name in NAMES if isinstance(getattr(redis_cluster_kit, name), type)]
)
def test_every_public_member_has_a_docstring(name: str) -> None:
    kind: Any = getattr(redis_cluster_kit, name)
    for member, value in vars(kind).items():
        found = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if member.startswith("_") or not (inspect.isfunction(found) or isinstance(found, property)):
            continue
        assert inspect.getdoc(found), f"{name}.{member}"


def test_the_reference_page_has_every_name_once() -> None:
    listed = re.findall(r"^\| `([A-Za-z_]+)` \|", PAGE.read_text().partition("### Members")[0], re.MULTILINE)
    listed += re.findall(
        r"^\| `([A-Za-z_]+)` \|", PAGE.read_text().partition("\n## Entities")[2], re.MULTILINE
    )
    assert sorted(listed) == NAMES
