"""What happens to shards and runners, as seen by one runner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from redis_cluster_kit.identity import ShardId


@dataclass(frozen=True, slots=True)
class ShardGained:
    """This runner owns `shard` from now on, under `fence`."""

    shard: ShardId
    fence: int


@dataclass(frozen=True, slots=True)
class ShardLost:
    """This runner does not own `shard` any more. `was_clean`: it was handed off, not taken away."""

    shard: ShardId
    fence: int
    was_clean: bool
    reason: str


@dataclass(frozen=True, slots=True)
class RunnerJoined:
    """A runner is a member of the cluster from now on."""

    runner_id: str


@dataclass(frozen=True, slots=True)
class RunnerLeft:
    """A runner left, or its membership ended."""

    runner_id: str


ClusterEvent: TypeAlias = ShardGained | ShardLost | RunnerJoined | RunnerLeft
