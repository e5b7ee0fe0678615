"""One entity as it stands in Redis: its shard, its state, and what waits in its mailbox. Reads only."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from redis_cluster_kit.codec import decode
from redis_cluster_kit.delivery import place_of
from redis_cluster_kit.envelope import Envelope, open_envelope
from redis_cluster_kit.errors import KitError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.ownership import FenceKeys, Installed, LeaseNodes
from redis_cluster_kit.redis_access import Keyspace, Lanes

from .singletons import readable

_MOST = 1_000
_PHASES = {"w": "waiting", "t": "taken", "p": "parked", "s": "scheduled", "d": "dead"}


@dataclass(frozen=True, slots=True)
class MessageSight:
    """One message in a mailbox."""

    id: str
    rpc: str
    """Empty if the message cannot be read."""
    phase: str
    attempt: int
    age_ms: int
    size: int
    arguments: Any


@dataclass(frozen=True, slots=True)
class EntitySight:
    """One entity; `state` is what its bytes hold, without its type."""

    type: str
    id: str
    shard: ShardId
    owner: str | None
    installed: Installed | None
    version: int
    """Of the state; 0: there is none yet."""
    schema: int
    state_size: int
    state: Any
    messages: list[MessageSight]
    """The oldest thousand."""
    waiting: int

    @property
    def taken(self) -> MessageSight | None:
        """The message that a handler has claimed, None if there is none."""
        return next((message for message in self.messages if message.phase == "taken"), None)


async def look_at_entity(
    lanes: Lanes, keyspace: Keyspace, leases: LeaseNodes, shard: ShardId, type: str, id: str
) -> EntitySight:
    """Read one entity."""
    keys, member = keyspace.of(shard), f"{type}:{id}"
    saved, entries, length, time = await asyncio.gather(
        lanes.call(keys.slot, "HMGET", keys.entity(member), "v", "s", "b", repeat=True),
        lanes.call(keys.slot, "XRANGE", keys.mailbox(member), "-", "+", "COUNT", _MOST, repeat=True),
        lanes.call(keys.slot, "XLEN", keys.mailbox(member), repeat=True),
        lanes.call(keys.slot, "TIME", repeat=True),
    )
    now = int(time[0]) * 1000 + int(time[1]) // 1000
    fields = [place_of(member, entry[1][1].decode()) for entry in entries]
    markers = await lanes.call(keys.slot, "HMGET", keys.live, *fields, repeat=True) if fields else []
    installed = await FenceKeys(lanes, keyspace, "", "", colocated=False).survey([shard])
    version, schema, content = saved
    return EntitySight(
        type=type,
        id=id,
        shard=shard,
        owner=(await leases.owners([shard]))[shard],
        installed=installed[shard],
        version=int(version or 0),
        schema=int(schema or 0),
        state_size=len(content or b""),
        state=None if content is None else readable(content),
        messages=[_message(entry, marker, now) for entry, marker in zip(entries, markers, strict=True)],
        waiting=length,
    )


def _message(entry: Any, marker: bytes | None, now: int) -> MessageSight:
    place, (_, id, _, content) = entry
    words = (marker or b"").decode(errors="replace").split(" ")
    counts = words[-2:] if words[0] in ("w", "t", "p") else ["0", "0"]
    try:
        envelope = open_envelope(content, max_depth=500)
        read = envelope if isinstance(envelope, Envelope) else None
        arguments = None if read is None else decode(read.args, Any, max_depth=500)
    except KitError:
        read, arguments = None, None
    return MessageSight(
        id=id.decode(),
        rpc="" if read is None else read.rpc,
        phase=_PHASES.get(words[0], "waiting"),
        attempt=sum(map(int, counts)) + 1,
        age_ms=max(0, now - int(place.partition(b"-")[0])),
        size=len(content),
        arguments=arguments,
    )
