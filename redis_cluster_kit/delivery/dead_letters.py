"""Dead letters: messages nobody will try again by themselves; to be listed, replayed and dropped by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from redis_cluster_kit.codec import decode
from redis_cluster_kit.envelope import EXECUTION_HEADER, Envelope, open_envelope, seal_envelope
from redis_cluster_kit.errors import KitError, MailboxFullError
from redis_cluster_kit.identity import ShardId, parse_message_id, public_message_id, shard_number
from redis_cluster_kit.redis_access import Keyspace, Lanes, Script

from .parcel import DeadRecord, place_of, split_place

REPLAY = Script.load("dead_letter/replay")
DROP = Script.load("dead_letter/drop")


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter:
    """A message that was buried, and why."""

    message_id: str
    type: str
    entity_id: str
    rpc: str
    """Empty if the message itself cannot be read."""
    reason: str
    error: str
    """What its handler raised last."""
    traceback: str
    failures: int
    deaths: int
    """How often it was in hand when its runner died."""
    buried_at: datetime
    runner_id: str
    payload: bytes
    """The arguments as they came, MessagePack."""


class DeadLetters:
    """The dead letters of a cluster."""

    def __init__(self, lanes: Lanes, keyspace: Keyspace, counts: dict[str, int], bytes_limit: int) -> None:
        self._lanes = lanes
        self._keyspace = keyspace
        self._counts = counts
        self._bytes_limit = bytes_limit

    async def list(self, *, type: str | None = None) -> Sequence[DeadLetter]:
        """Return all, or those of one type of entity, oldest first."""
        shards = [ShardId(group, number) for group, count in self._counts.items() for number in range(count)]
        found = await asyncio.gather(*(self._of_shard(shard, type) for shard in shards))
        return sorted(
            (letter for letters in found for letter in letters), key=lambda letter: letter.buried_at
        )

    async def replay(self, message_id: str) -> bool:
        """Put one back into its mailbox, with no failures counted; False: there is none.

        Its id is not checked for repeats. `MailboxFullError` if its mailbox has no room.
        """
        address = parse_message_id(message_id)
        shard, member = self._shard(address.group, address.type, address.entity_id)
        keys = self._keyspace.of(shard)
        data = await self._lanes.call(keys.slot, "HGET", keys.dead, place_of(member, address.id), repeat=True)
        if data is None:
            return False
        record = decode(data, DeadRecord)
        message = _resuming(record)
        outcome = await REPLAY(
            self._lanes,
            keys.slot,
            dead=keys.dead,
            mailbox=keys.mailbox(member),
            live=keys.live,
            active=keys.active,
            fence=keys.fence,
            shard=keys.shard,
            member=member,
            id=address.id,
            message=message,
            capacity=record.capacity,
            bytes_limit=self._bytes_limit,
        )
        if outcome.word == "full":
            raise MailboxFullError(entity_id=address.entity_id, capacity=record.capacity)
        return outcome.word == "replayed"

    async def drop(self, message_id: str) -> bool:
        """Forget one for good; False: there is none."""
        address = parse_message_id(message_id)
        shard, member = self._shard(address.group, address.type, address.entity_id)
        keys = self._keyspace.of(shard)
        outcome = await DROP(
            self._lanes, keys.slot, dead=keys.dead, live=keys.live, member=member, id=address.id
        )
        return outcome.word == "dropped"

    async def count(self, shards: Iterable[ShardId]) -> int:
        """Return how many there are in these shards."""
        keys = [self._keyspace.of(shard) for shard in shards]
        lengths = await asyncio.gather(
            *(self._lanes.call(one.slot, "HLEN", one.dead, repeat=True) for one in keys)
        )
        return sum(lengths)

    def _shard(self, group: str, type: str, entity_id: str) -> tuple[ShardId, str]:
        count = self._counts.get(group)
        if count is None:
            raise ValueError(f"this cluster has no shard group {group!r}")
        return ShardId(group, shard_number(type, entity_id, count)), f"{type}:{entity_id}"

    async def _of_shard(self, shard: ShardId, type: str | None) -> Sequence[DeadLetter]:
        keys = self._keyspace.of(shard)
        pairs = await self._lanes.call(keys.slot, "HGETALL", keys.dead, repeat=True)
        letters = (
            _letter(shard, place.decode(), data) for place, data in zip(pairs[::2], pairs[1::2], strict=True)
        )
        return [letter for letter in letters if type in (None, letter.type)]


def _resuming(record: DeadRecord) -> bytes:
    """Return the message to replay; where its id does not say it, it names the execution it goes on with."""
    if "/" not in record.execution:
        return record.message
    envelope = open_envelope(record.message, max_depth=500)
    if not isinstance(envelope, Envelope):
        return record.message
    headers = envelope.headers | {EXECUTION_HEADER: record.execution}
    return seal_envelope(msgspec.structs.replace(envelope, headers=headers), limit=2**31, max_depth=500)


def _letter(shard: ShardId, place: str, data: bytes) -> DeadLetter:
    member, id = split_place(place)
    type, _, entity_id = member.partition(":")
    record = decode(data, DeadRecord)
    try:
        envelope = open_envelope(record.message, max_depth=500)
    except KitError:
        envelope = None
    read = envelope if isinstance(envelope, Envelope) else None
    return DeadLetter(
        message_id=public_message_id(id, shard.group, type, entity_id),
        type=type,
        entity_id=entity_id,
        rpc="" if read is None else read.rpc,
        reason=record.reason,
        error=f"{record.error_type}: {record.error_text}" if record.error_type else "",
        traceback=record.traceback,
        failures=record.failures,
        deaths=record.deaths,
        buried_at=datetime.fromtimestamp(record.buried_ms / 1000, UTC),
        runner_id=record.runner_id,
        payload=record.message if read is None else bytes(read.args),
    )
