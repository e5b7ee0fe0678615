"""What users import: sorted, complete, and every name says what it is."""

from __future__ import annotations

import inspect

import redis_cluster_kit
from redis_cluster_kit import errors, settings


def test_the_names_are_sorted_and_there() -> None:
    names = redis_cluster_kit.__all__
    assert names == sorted(names)
    assert len(set(names)) == len(names)
    assert all(hasattr(redis_cluster_kit, name) for name in names)


def test_what_is_imported_is_exported() -> None:
    public = {
        name
        for name, value in vars(redis_cluster_kit).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(redis_cluster_kit.__all__)


def test_every_error_and_every_group_of_settings_is_exported() -> None:
    for module, base in ((errors, errors.KitError), (settings, settings.Settings.__base__)):
        assert base is not None
        for name, value in vars(module).items():
            if inspect.isclass(value) and issubclass(value, base) and value.__module__ == module.__name__:
                known = name.startswith("_") or name in redis_cluster_kit.__all__ or name in _INNER
                assert known, f"{name} is not importable from redis_cluster_kit"


_INNER = {"ReasonedError", "TransportedError"}
"""Bases and causes nobody raises or catches by themselves."""


def test_every_name_has_a_docstring() -> None:
    for name in redis_cluster_kit.__all__:
        value = getattr(redis_cluster_kit, name)
        if inspect.isclass(value) or callable(value):
            assert inspect.getdoc(value), f"{name} says nothing of itself"
