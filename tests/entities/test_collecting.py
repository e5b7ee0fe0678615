"""Python's garbage collector while a process hosts, and when it does not any more."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from redis_cluster_kit import EntitySettings, Settings
from redis_cluster_kit.runtime import rarer_collections

from .account import Account
from .conftest import MakeCluster

OURS = 12_345


@pytest.fixture(autouse=True)
def as_python_sets_it() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.enable()
    gc.set_threshold(*before)


async def test_a_host_looks_less_often_until_it_leaves(make_cluster: MakeCluster) -> None:
    settings = Settings(entities=EntitySettings(gc_threshold=OURS))
    async with make_cluster(hosting=False, settings=settings):
        assert gc.get_threshold() == (700, 10, 10), "a sender leaves it alone"
    async with make_cluster(Account, settings=settings):
        assert gc.get_threshold()[0] == OURS
    assert gc.get_threshold() == (700, 10, 10)


def test_several_in_one_process_leave_in_any_order() -> None:
    first, second = rarer_collections(2_000), rarer_collections(3_000)
    with first:
        second.__enter__()
        assert gc.get_threshold()[0] == 3_000
    assert gc.get_threshold()[0] == 3_000
    second.__exit__(None, None, None)
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [(0, 10, 10), (50_000, 5, 5)])
def test_what_looks_less_often_anyway_is_left_alone(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with rarer_collections(10_000):
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own


def test_zero_asks_for_nothing() -> None:
    with rarer_collections(0):
        assert gc.get_threshold() == (700, 10, 10)


def test_what_somebody_else_set_meanwhile_stays() -> None:
    with rarer_collections(10_000):
        gc.set_threshold(77, 7, 7)
    assert gc.get_threshold() == (77, 7, 7)
