"""Two entities: `Room` orders lines and fans them out, `Reader` keeps what one person has not read yet.

The line, the room's history and the messages to all members leave in one commit: a line is in the history if
and only if it reaches every reader, once, in the room's order, whatever is killed meanwhile.
"""

from __future__ import annotations

import msgspec

from redis_cluster_kit import Entity, EntityError, rpc

HISTORY = 50
"""Lines a room keeps for those who come later. State is written with every turn: keep it small."""
UNREAD = 200
"""Lines kept for somebody who does not read; the oldest go first."""
MEMBERS = 100
"""A turn sends at most 128 messages. Larger rooms: let readers of a part of the members fan out further."""


class Line(msgspec.Struct, frozen=True):
    room: str
    author: str
    text: str


class RoomIsFull(EntityError, code="room_is_full"):  # noqa: N818 - an answer, named as users say it
    members: int


class NotAMember(EntityError, code="not_a_member"):  # noqa: N818
    person: str


class RoomState(msgspec.Struct):
    members: list[str] = []
    history: list[Line] = []


class Room(Entity[RoomState], name="room"):
    """One room; its mailbox is what puts the lines of all authors in one order."""

    @rpc(raises=[RoomIsFull])
    async def join(self, person: str) -> list[Line]:
        """Come in (again: no harm) and see what was said before."""
        if person not in self.state.members:
            if len(self.state.members) >= MEMBERS:
                raise RoomIsFull(members=len(self.state.members))
            self.state.members.append(person)
        return self.state.history

    @rpc
    async def leave(self, person: str) -> None:
        if person in self.state.members:
            self.state.members.remove(person)

    @rpc(raises=[NotAMember])
    async def say(self, person: str, text: str) -> None:
        if person not in self.state.members:
            raise NotAMember(person=person)
        await self._tell(Line(self.id, person, text))

    @rpc
    async def announce(self, text: str) -> None:
        """Say something as nobody in particular: for `cluster.broadcast(Room.announce, …)`."""
        await self._tell(Line(self.id, "", text))

    @rpc(readonly=True)
    async def members(self) -> list[str]:
        return sorted(self.state.members)

    async def _tell(self, line: Line) -> None:
        self.state.history = [*self.state.history, line][-HISTORY:]
        for person in self.state.members:
            await self.cluster.entity(Reader, person).hear.send(line)  # staged: leaves with the commit


class Unread(msgspec.Struct):
    lines: list[Line] = []
    first: int = 1
    """The number of the oldest line here; numbers grow by one with each line heard."""


class Page(msgspec.Struct, frozen=True):
    """What there is to read, and the number to name when it has been read."""

    lines: list[Line]
    upto: int


class Reader(Entity[Unread], name="reader"):
    """What one person has not read yet, from all rooms."""

    @rpc
    async def hear(self, line: Line) -> None:
        self.state.lines.append(line)
        excess = max(0, len(self.state.lines) - UNREAD)
        self.state.lines = self.state.lines[excess:]
        self.state.first += excess

    @rpc
    async def read(self, done: int = 0) -> Page:
        """Forget what was read up to `done` and return the rest: a reply that is lost loses no line."""
        known = min(max(0, done - self.state.first + 1), len(self.state.lines))
        self.state.lines = self.state.lines[known:]
        self.state.first += known
        return Page(self.state.lines, self.state.first + len(self.state.lines) - 1)
