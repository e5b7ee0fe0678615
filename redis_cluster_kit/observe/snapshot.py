"""What a cluster looks like from outside, read from Redis: its record, its members, its shards.

The one reader of internals for command line, demo and dashboards. It only reads: watching changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.ownership import FenceKeys, Installed, LeaseNodes, Member, read_member
from redis_cluster_kit.redis_access import Keyspace, Lanes
from redis_cluster_kit.storage import ClusterRecord


@dataclass(frozen=True, slots=True)
class ShardSight:
    """One shard: who holds its lease, and the fence installed in Redis."""

    shard: ShardId
    owner: str | None
    installed: Installed | None

    @property
    def remark(self) -> str:
        """What is unusual about it; empty if nothing."""
        if self.owner is None:
            return "free"
        if self.installed is None:
            return "no fence"
        return "" if self.installed.runner_id == self.owner else f"fence of {self.installed.runner_id}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at a cluster; its parts were read one after the other."""

    record: ClusterRecord
    members: Mapping[str, Member]
    shards: list[ShardSight]

    def owned_by(self, runner_id: str) -> int:
        """Return how many shards a runner holds."""
        return sum(1 for sight in self.shards if sight.owner == runner_id)

    @property
    def free(self) -> list[ShardSight]:
        """The shards whose lease nobody holds."""
        return [sight for sight in self.shards if sight.owner is None]


async def read_record(lanes: Lanes, keyspace: Keyspace) -> ClusterRecord | None:
    """Return the cluster's record, None if nobody ever joined."""
    data = await lanes.call(keyspace.home_slot, "GET", keyspace.record, repeat=True)
    return None if data is None else ClusterRecord.from_json(data)


async def read_members(lanes: Lanes, keyspace: Keyspace) -> dict[str, Member]:
    """Return the runners whose membership lasts, by the server's clock."""
    slot = keyspace.home_slot
    time, ends, found = await asyncio.gather(
        lanes.call(slot, "TIME", repeat=True),
        lanes.call(slot, "ZRANGE", keyspace.alive, 0, -1, "WITHSCORES", repeat=True),
        lanes.call(slot, "HGETALL", keyspace.members, repeat=True),
    )
    now = int(time[0]) * 1000 + int(time[1]) // 1000
    lasting = {ends[place] for place in range(0, len(ends), 2) if float(ends[place + 1]) > now}
    pairs = {found[place]: found[place + 1] for place in range(0, len(found), 2)}
    members = {name.decode(): read_member(data) for name, data in pairs.items() if name in lasting}
    return {name: member for name, member in sorted(members.items()) if member is not None}


async def take_snapshot(
    lanes: Lanes, keyspace: Keyspace, record: ClusterRecord, leases: LeaseNodes
) -> Snapshot:
    """Look at everything once; `PersistenceFailedError` if Redis or too few lease nodes answer."""
    shards = [
        ShardId(group, number)
        for group, count in sorted(record.shard_counts.items())
        for number in range(count)
    ]
    keys = FenceKeys(lanes, keyspace, "", "", colocated=False)
    members = await read_members(lanes, keyspace)
    owners = await leases.owners(shards)
    installed = await keys.survey(shards)
    sights = [ShardSight(shard, owners.get(shard), installed.get(shard)) for shard in shards]
    return Snapshot(record, members, sights)
