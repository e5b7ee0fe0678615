"""Who owns which shard: leases, fences, membership, placement, hand-off. What is served it does not know."""

from .assignment import Candidate, assign
from .events import ClusterEvent, RunnerJoined, RunnerLeft, ShardGained, ShardLost, Subscribers
from .fences import FenceKeys, FenceRegister, FenceSource, Installed, RegisteredFences, WeakFences
from .holding import OwnedShard, ShardWork
from .inbox import Inbox
from .lease import LeaseNodes
from .membership import Member, Membership, read_member
from .plan import SINGLETON, incomparable_types
from .rebalancing import Ownership

__all__ = [
    "SINGLETON",
    "Candidate",
    "ClusterEvent",
    "FenceKeys",
    "FenceRegister",
    "FenceSource",
    "Inbox",
    "Installed",
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
    "ShardWork",
    "Subscribers",
    "WeakFences",
    "assign",
    "incomparable_types",
    "read_member",
]
