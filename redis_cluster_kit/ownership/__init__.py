"""Who owns which shard: leases, fences, membership, placement, hand-off. It knows nothing of what is served."""

from .assignment import Candidate, assign
from .events import ClusterEvent, RunnerJoined, RunnerLeft, ShardGained, ShardLost
from .fences import FenceRegister, RegisteredFences, WeakFences
from .holding import OwnedShard
from .lease import LeaseNodes
from .membership import Member, Membership
from .rebalancing import Ownership

__all__ = [
    "Candidate",
    "ClusterEvent",
    "FenceRegister",
    "LeaseNodes",
    "Member",
    "Membership",
    "OwnedShard",
    "Ownership",
    "RegisteredFences",
    "RunnerJoined",
    "RunnerLeft",
    "ShardGained",
    "ShardLost",
    "WeakFences",
    "assign",
]
