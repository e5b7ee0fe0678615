"""How many entities come into memory at once: the rest of a crowd waits outside, as names only.

Without it, a backlog in many mailboxes would begin as many tasks in one go, and the event loop would not get
to the renewal of leases: shards lost, taken again, and lost again. It costs nothing once an entity is in.
"""

from __future__ import annotations

from typing import Protocol

MOST = 100


class Shard(Protocol):
    """What brings its entities in when it is their turn."""

    def activate(self, member: str) -> None: ...


class Doorway:
    """Shared by the shards of a runner; an entity is inside it from its activation to its first message."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._inside: set[tuple[Shard, str]] = set()
        self._waiting: dict[tuple[Shard, str], None] = {}

    def __len__(self) -> int:
        return len(self._inside) + len(self._waiting)

    def enter(self, shard: Shard, member: str) -> bool:
        """Return whether it may come in now; else it is activated when there is room."""
        if len(self._inside) < self._most:
            self._inside.add((shard, member))
            return True
        self._waiting[shard, member] = None
        return False

    def leave(self, shard: Shard, member: str) -> None:
        """It is loaded, or gone; the next may come in. May be called again."""
        self._inside.discard((shard, member))
        self._let_in()

    def close(self, shard: Shard) -> None:
        """Forget the entities of a shard that is served no longer."""
        self._inside = {place for place in self._inside if place[0] is not shard}
        self._waiting = {place: None for place in self._waiting if place[0] is not shard}
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and len(self._inside) < self._most:
            shard, member = next(iter(self._waiting))
            del self._waiting[shard, member]
            shard.activate(member)
