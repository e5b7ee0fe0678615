"""What a cluster looks like from outside, read from Redis: its record, its members, its shards.

It reads with the same scripts as the runners do and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.ownership import FenceKeys, Installed, LeaseNodes, Member, Membership
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


async def read_record(lanes: Lanes, keyspace: Keyspace) -> ClusterRecord | None:
    """Return the cluster's record, None if nobody ever joined."""
    data = await lanes.call(keyspace.home_slot, "GET", keyspace.record, repeat=True)
    return None if data is None else ClusterRecord.from_json(data)


async def take_snapshot(
    lanes: Lanes, keyspace: Keyspace, record: ClusterRecord, leases: LeaseNodes
) -> Snapshot:
    """Look at everything once."""
    watcher = Member(runner_id="rck-watcher", hosting=False)
    membership = Membership(lanes, keyspace, Clock(), watcher, timedelta(seconds=5))
    await membership.refresh()
    shards = [
        ShardId(group, number)
        for group, count in sorted(record.shard_counts.items())
        for number in range(count)
    ]
    keys = FenceKeys(lanes, keyspace, watcher.runner_id, "", colocated=False)
    owners = await leases.owners(shards)
    installed = await keys.survey(shards)
    sights = [ShardSight(shard, owners.get(shard), installed.get(shard)) for shard in shards]
    return Snapshot(record, membership.members, sights)
