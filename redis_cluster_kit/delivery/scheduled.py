"""Scheduled messages: what is due, and its move into the mailbox by the shard's owner."""

from __future__ import annotations

from typing import NamedTuple

from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.redis_access import Keyspace, Lanes, Script

from .mailbox import refuse_fenced
from .parcel import HeldFence, split_place

DUE = Script.load("scheduled/due")
PROMOTE = Script.load("scheduled/promote")

MOST = 100
_PLACE = 15
"""Characters before the message's field in a member of the sorted set: its order, and a blank."""


class DueMessage(NamedTuple):
    """One scheduled message whose time has come."""

    place: str
    member: str
    id: str
    capacity: int
    message: bytes


class DueList(NamedTuple):
    """What is due now, oldest first, and when the next one is, in server milliseconds; None: never."""

    now_ms: int
    next_ms: int | None
    messages: list[DueMessage]


class Scheduled:
    """The scheduled messages of all shards."""

    def __init__(self, lanes: Lanes, keyspace: Keyspace, bytes_limit: int) -> None:
        self._lanes = lanes
        self._keyspace = keyspace
        self._bytes_limit = bytes_limit

    async def due(self, shard: ShardId, offset_ms: int, skip: int) -> DueList:
        """List up to `MOST` messages that are due, after passing over the `skip` oldest."""
        keys = self._keyspace.of(shard)
        outcome = await DUE(
            self._lanes,
            keys.slot,
            scheduled=keys.scheduled,
            later=keys.later,
            offset=offset_ms,
            skip=skip,
            most=MOST,
        )
        now, following, items = outcome.fields
        messages = [_read(place.decode(), stored) for place, stored in items]
        return DueList(int(now), int(float(following)) if following else None, messages)

    async def promote(self, shard: ShardId, fence: HeldFence, due: DueMessage) -> str:
        """Move one into its mailbox: `promoted`, `absent` (it was meanwhile) or `full` (it stays)."""
        keys = self._keyspace.of(shard)
        outcome = await PROMOTE(
            self._lanes,
            keys.slot,
            fence=keys.fence,
            scheduled=keys.scheduled,
            later=keys.later,
            mailbox=keys.mailbox(due.member),
            live=keys.live,
            active=keys.active,
            number=fence.number,
            nonce=fence.nonce,
            place=due.place,
            member=due.member,
            id=due.id,
            message=due.message,
            capacity=due.capacity,
            bytes_limit=self._bytes_limit,
        )
        refuse_fenced(outcome, shard, fence)
        return outcome.word


def _read(place: str, stored: bytes) -> DueMessage:
    member, id = split_place(place[_PLACE:])
    capacity, _, message = stored.partition(b" ")
    return DueMessage(place, member, id, int(capacity or 0), message)
