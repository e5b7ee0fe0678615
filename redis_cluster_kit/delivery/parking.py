"""Parking messages that wait durably, and waking them: the typed callers of `turn/park` and `turn/wake`.

A parked message stays in its place in its mailbox. The owner parks; anybody wakes.
"""

from __future__ import annotations

from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.redis_access import Keyspace, Lanes, Script

from .mailbox import refuse_fenced
from .parcel import HeldFence, Message, place_of

PARK = Script.load("turn/park")
WAKE = Script.load("turn/wake")
NUDGE = Script.load("fence/nudge")


class Parking:
    """The parked messages of a namespace."""

    def __init__(self, lanes: Lanes, keyspace: Keyspace) -> None:
        self._lanes = lanes
        self._keyspace = keyspace

    async def park(
        self, shard: ShardId, fence: HeldFence, member: str, message: Message, *, due_ms: int
    ) -> bool:
        """Park a message until it is woken, at `due_ms` at the latest; False: it is not in hand any more."""
        keys = self._keyspace.of(shard)
        outcome = await PARK(
            self._lanes,
            keys.slot,
            fence=keys.fence,
            live=keys.live,
            active=keys.active,
            scheduled=keys.scheduled,
            number=fence.number,
            nonce=fence.nonce,
            member=member,
            entry=message.entry,
            id=message.id,
            due=due_ms,
        )
        refuse_fenced(outcome, shard, fence)
        return outcome.word == "parked"

    async def wake(self, shard: ShardId, member: str, id: str) -> str:
        """Wake a message: `woken`, `taken` (a runner has it in hand) or `absent` (nothing is parked)."""
        keys = self._keyspace.of(shard)
        outcome = await WAKE(
            self._lanes,
            keys.slot,
            live=keys.live,
            active=keys.active,
            scheduled=keys.scheduled,
            fence=keys.fence,
            shard=keys.shard,
            member=member,
            id=id,
        )
        return outcome.word

    async def tell_owner(self, shard: ShardId, subject: str) -> None:
        """Tell the owner of a shard that something came for what it runs, if there is one."""
        keys = self._keyspace.of(shard)
        await NUDGE(self._lanes, keys.slot, fence=keys.fence, shard=keys.shard, subject=subject)

    async def is_alive(self, shard: ShardId, member: str, id: str) -> bool:
        """Return whether a message is waiting, taken, parked, scheduled or dead: not ended, at any rate."""
        keys = self._keyspace.of(shard)
        found = await self._lanes.call(keys.slot, "HEXISTS", keys.live, place_of(member, id), repeat=True)
        return bool(found)

    async def count(self, shard: ShardId) -> int:
        """Return how many messages of a shard are parked."""
        keys = self._keyspace.of(shard)
        found = await self._lanes.call(keys.slot, "HGET", keys.live, "\nparked", repeat=True)
        return int(found or 0)
