"""A crowd of entities comes into memory some at a time, however many mailboxes hold something."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redis_cluster_kit import Entity, rpc
from redis_cluster_kit.delivery import Mailboxes
from redis_cluster_kit.runtime.doorway import MOST, Doorway
from redis_cluster_kit.testing import local_cluster, until


class Guest(Entity[None], name="guest"):
    @rpc
    async def greet(self) -> str:
        return self.id


class Hall:
    """A shard that notes whom it is told to bring in."""

    def __init__(self, doorway: Doorway, *, is_open: bool = True) -> None:
        self._doorway = doorway
        self._is_open = is_open
        self.came: list[str] = []

    def activate(self, member: str) -> None:
        if self._is_open and self._doorway.enter(self, member):
            self.came.append(member)


def test_those_outside_come_in_their_order_as_others_have_loaded() -> None:
    doorway = Doorway(most=2)
    hall = Hall(doorway)
    for member in "abcd":
        hall.activate(member)
    assert hall.came == ["a", "b"]
    doorway.leave(hall, "b")
    doorway.leave(hall, "b")  # told again by one that has gone: no second place is free
    assert hall.came == ["a", "b", "c"]
    doorway.leave(hall, "a")
    assert hall.came == ["a", "b", "c", "d"]


def test_who_waits_is_let_in_once() -> None:
    doorway = Doorway(most=1)
    hall = Hall(doorway)
    for member in ("a", "b", "b", "c", "b"):
        hall.activate(member)
    for member in "abc":
        doorway.leave(hall, member)
    assert hall.came == ["a", "b", "c"]
    assert len(doorway) == 0


def test_a_shard_that_goes_takes_its_entities_along_and_makes_room() -> None:
    doorway = Doorway(most=2)
    lost, other = Hall(doorway), Hall(doorway)
    for member in "abc":
        lost.activate(member)
    other.activate("x")
    doorway.close(lost)
    assert lost.came == ["a", "b"]
    assert other.came == ["x"]
    assert len(doorway) == 1


def test_one_that_no_longer_comes_holds_nobody_up() -> None:
    doorway = Doorway(most=1)
    ending, other = Hall(doorway), Hall(doorway)
    ending.activate("a")
    ending.activate("b")
    other.activate("x")
    ending._is_open = False
    doorway.leave(ending, "a")
    assert other.came == ["x"]


async def test_a_crowd_is_loaded_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    loading = 0
    may_load = asyncio.Event()
    claim = Mailboxes.claim

    async def held_up(self: Mailboxes, *args: Any, with_state: bool = False, **options: Any) -> Any:
        nonlocal loading
        loading += with_state
        try:
            if with_state:
                await may_load.wait()
            return await claim(self, *args, with_state=with_state, **options)
        finally:
            loading -= with_state

    monkeypatch.setattr(Mailboxes, "claim", held_up)
    async with local_cluster(pods=1, entities=[Guest]) as pods:
        (host,) = pods.hosts()
        guests = [f"id-{number}" for number in range(5 * MOST)]
        asked = asyncio.gather(*(pods[0].entity(Guest, guest).greet() for guest in guests))
        await until(
            lambda: len(host.doorway) == len(guests) and loading >= MOST,
            what="everybody at the door, and the first inside",
        )
        assert loading == MOST
        may_load.set()
        assert await asked == guests
        await until(lambda: len(host.doorway) == 0, what="nobody at the door")
        assert len(host.residents) == len(guests)
