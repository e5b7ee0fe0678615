"""The chat rooms: every reader hears every line once and in order, also when a pod is killed meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from examples.chat_rooms.rooms import HISTORY, MEMBERS, UNREAD, Line, NotAMember, Reader, Room, RoomIsFull
from redis_cluster_kit import Cluster
from redis_cluster_kit.testing import instance, local_cluster

ROOT = Path(__file__).parents[2]
PEOPLE = ("alice", "bob", "carol")


async def _read(pod: Cluster, person: str, lines: int) -> list[Line]:
    reader = pod.entity(Reader, person)
    found: list[Line] = []
    done = 0
    with anyio.fail_after(30):
        while len(found) < lines:
            page = await reader.read(done)
            found, done = found + page.lines, page.upto
            await anyio.sleep(0.01)
    return found


async def test_everybody_hears_every_line_once_and_in_order_though_the_rooms_owner_is_killed() -> None:
    async with local_cluster(pods=3, entities=[Room, Reader]) as pods:
        await pods.settle()
        room = pods[0].entity(Room, "kitchen")
        for person in PEOPLE:
            assert await room.join(person) == []
        for number in range(20):
            await room.say(PEOPLE[number % 3], str(number))
            if number == 10:
                owner = next(place for place, pod in enumerate(pods) if pod.is_local(Room, "kitchen"))
                await pods.kill(owner)
                room = pods[0].entity(Room, "kitchen")
        expected = [Line("kitchen", PEOPLE[number % 3], str(number)) for number in range(20)]
        for person in PEOPLE:
            assert await _read(pods[1], person, 20) == expected
        assert await room.join("dora") == expected


async def test_an_announcement_reaches_every_room_in_memory() -> None:
    async with local_cluster(pods=2, entities=[Room, Reader]) as pods:
        await pods.settle()
        for number in range(6):
            await pods[0].entity(Room, f"room-{number}").join("alice")
        assert await pods[0].broadcast(Room.announce, "Closing soon") == 6
        heard = await _read(pods[0], "alice", 6)
        assert sorted(line.room for line in heard) == [f"room-{number}" for number in range(6)]


async def test_members_only_and_no_more_than_fit() -> None:
    room: Any = instance(Room, "kitchen")
    with pytest.raises(NotAMember) as refused:
        await room.say("mallory", "hello")
    assert refused.value.person == "mallory"
    for number in range(MEMBERS):
        await room.join(f"person-{number}")
    await room.join("person-0")  # is in already
    with pytest.raises(RoomIsFull) as full:
        await room.join("one more")
    assert full.value.members == MEMBERS
    await room.leave("person-0")
    await room.join("one more")
    await room.say("one more", "phew")
    assert len(room.sent) == MEMBERS
    assert len(await room.members()) == MEMBERS


async def test_histories_are_bounded_and_the_oldest_go_first() -> None:
    room: Any = instance(Room, "kitchen")
    await room.join("alice")
    for number in range(HISTORY + 5):
        await room.say("alice", str(number))
    assert [line.text for line in await room.join("alice")] == [str(n) for n in range(5, HISTORY + 5)]

    reader: Any = instance(Reader, "alice")
    for number in range(UNREAD + 5):
        await reader.hear(Line("kitchen", "alice", str(number)))
    page = await reader.read()
    assert [line.text for line in page.lines] == [str(n) for n in range(5, UNREAD + 5)]
    assert page.upto == UNREAD + 5


async def test_reading_again_forgets_only_what_was_read() -> None:
    reader: Any = instance(Reader, "alice")
    one, two, three = (Line("kitchen", "bob", text) for text in "123")
    for line in (one, two):
        await reader.hear(line)
    page = await reader.read()
    assert page.lines == [one, two]
    assert (await reader.read()).lines == [one, two]  # the first reply was lost: nothing is
    await reader.hear(three)
    assert (await reader.read(page.upto)).lines == [three]
    assert (await reader.read(page.upto)).lines == [three]
    assert (await reader.read(page.upto + 1)).lines == []
    assert (await reader.read(10**9)).upto == 3


def test_the_program_runs() -> None:
    command = [sys.executable, "-W", "error", "-m", "examples.chat_rooms"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["bob finds ['Anybody here?']", "not a member: mallory"]
    assert done.stdout.splitlines()[-1] == "alice reads: everybody: Closing soon"
