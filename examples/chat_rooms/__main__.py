"""Two people, one room, an announcement to all rooms."""

from __future__ import annotations

import anyio

from redis_cluster_kit import Cluster

from .rooms import Line, NotAMember, Reader, Room


async def read(cluster: Cluster, person: str, lines: int) -> list[Line]:
    """Read until so many lines have come: the relay delivers them within milliseconds."""
    reader = cluster.entity(Reader, person)
    found: list[Line] = []
    done = 0
    while len(found) < lines:
        page = await reader.read(done)
        found, done = found + page.lines, page.upto
        await anyio.sleep(0.01)
    return found


async def main() -> None:
    async with Cluster.embedded(entities=[Room, Reader]) as cluster:
        kitchen = cluster.entity(Room, "kitchen")
        await kitchen.join("alice")
        await kitchen.say("alice", "Anybody here?")
        print("bob finds", [line.text for line in await kitchen.join("bob")])
        await kitchen.say("bob", "Yes!")
        try:
            await kitchen.say("mallory", "Me too")
        except NotAMember as error:
            print("not a member:", error.person)
        print("announced in", await cluster.broadcast(Room.announce, "Closing soon"), "room")
        for line in await read(cluster, "alice", 3):
            print(f"alice reads: {line.author or 'everybody'}: {line.text}")


anyio.run(main)
