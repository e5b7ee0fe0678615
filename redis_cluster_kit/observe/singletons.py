"""Every singleton as it stands: who leads it, what the system keeps of it, and its state. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from redis_cluster_kit.codec import decode
from redis_cluster_kit.entity import SingletonMetadata
from redis_cluster_kit.errors import KitError
from redis_cluster_kit.identity import ShardId, shard_number
from redis_cluster_kit.ownership import SINGLETON, FenceKeys, Installed, LeaseNodes, Member
from redis_cluster_kit.redis_access import Keyspace, Lanes, kind_of
from redis_cluster_kit.runtime import STALE_AFTER, metadata_of
from redis_cluster_kit.storage import SingletonStore, Version

_DEEPEST = 500


@dataclass(frozen=True, slots=True)
class SingletonSight:
    """One singleton. `metadata` is None before anybody has led it."""

    name: str
    shard: ShardId
    owner: str | None
    installed: Installed | None
    is_served: bool
    """Whether a live runner has it registered."""
    metadata: SingletonMetadata | None
    saved: Version
    """Its state as bytes; version 0: it has saved none."""
    now: datetime
    """When it was read, by the data Redis' clock, as all times of its metadata are."""

    @property
    def verdict(self) -> str:
        """`ok`, or what is unusual."""
        if not self.is_served:
            return "nobody serves it"
        if self.owner is None:
            return "nobody leads it"
        kept = self.metadata
        if kept is None:
            return "not led yet"
        if kept.failed_at is not None and (kept.last_run is None or kept.failed_at > kept.last_run):
            return "failing"
        is_stale = kept.heartbeat is None or self.now - kept.heartbeat > STALE_AFTER
        return "stale" if is_stale else "ok"

    @property
    def state(self) -> Any:
        """What the bytes of its state hold, without its type; text that says so if they cannot be read."""
        return None if not self.saved.version else readable(self.saved.body)


def readable(content: bytes) -> Any:
    """Return what bytes hold, without a type; a text that says so if they hold nothing readable."""
    try:
        return decode(content, Any, max_depth=_DEEPEST)
    except KitError as error:
        return f"{len(content)} bytes that cannot be read: {error}"


def served_singletons(members: Mapping[str, Member], counts: Mapping[str, int]) -> dict[str, ShardId]:
    """Return the singletons that live runners have registered, with their shards."""
    return {
        name: ShardId(group, shard_number("singleton", name, counts[group]))
        for member in members.values()
        for group, serves in member.serves.items()
        for name in (one.removeprefix(SINGLETON) for one in serves if one.startswith(SINGLETON))
        if group in counts
    }


async def stored_singletons(lanes: Lanes, keyspace: Keyspace) -> dict[str, ShardId]:
    """Return the singletons that have a key in Redis, with their shards; it walks over all keys."""
    found: dict[str, ShardId] = {}
    for wanted in ("singleton", "state"):
        async for key in lanes.scan(keyspace.pattern(wanted)):
            kind = kind_of(key)
            if kind is not None and kind.name == wanted:
                _, group, number, name = key.decode().partition("}:")[2].split(":")
                found[name] = ShardId(group, int(number))
    return found


async def look_at_singletons(
    lanes: Lanes,
    keyspace: Keyspace,
    leases: LeaseNodes,
    store: SingletonStore,
    places: Mapping[str, ShardId],
    served: Iterable[str],
    *,
    timeout: float,
) -> list[SingletonSight]:
    """Read these singletons, by name; from the database where the store has one."""
    shards = sorted(set(places.values()))
    owners = await leases.owners(shards)
    installed = await FenceKeys(lanes, keyspace, "", "", colocated=False).survey(shards)
    known, time = set(served), await lanes.call(keyspace.home_slot, "TIME", repeat=True)
    now = datetime.fromtimestamp(int(time[0]) + int(time[1]) / 1e6, UTC)

    async def look(name: str, shard: ShardId) -> SingletonSight:
        noted, saved = await asyncio.gather(
            store.read_note(name, shard, fresh=True, timeout=timeout),
            store.read(name, shard, fresh=True, timeout=timeout),
        )
        kept = None if noted is None else metadata_of(noted)
        return SingletonSight(name, shard, owners[shard], installed[shard], name in known, kept, saved, now)

    return list(await asyncio.gather(*(look(name, shard) for name, shard in sorted(places.items()))))
