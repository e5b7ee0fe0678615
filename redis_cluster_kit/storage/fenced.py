"""The guard of every fenced SQL write: the register's row must name this owner, and does so until the commit.

A condition on the written row alone would let a stale owner INSERT one that is not there yet. What zero
written rows mean is the caller's to find out.
"""

from __future__ import annotations

from dataclasses import dataclass

from .statements import Statement

# FOR SHARE makes a grant wait until the write is done, and a write that waited for a grant sees its fence.
_REGISTER = """
WITH register AS (
    SELECT 1 FROM rck_fences
    WHERE namespace = :namespace AND shard_group = :shard_group AND shard = :shard
      AND fence = :fence AND nonce = :nonce
    {for_share}
)
"""

_HELD = "EXISTS (SELECT 1 FROM register)"


@dataclass(frozen=True, slots=True)
class HeldFence:
    """What an owner presents with every write."""

    namespace: str
    shard_group: str
    shard: int
    fence: int
    nonce: str

    def parameters(self) -> dict[str, object]:
        """Return the guard's parameters; a statement may use them for its own columns too."""
        return {
            "namespace": self.namespace,
            "shard_group": self.shard_group,
            "shard": self.shard,
            "fence": self.fence,
            "nonce": self.nonce,
        }


def fenced(write: str) -> Statement:
    """Put `write` under the guard: an UPDATE, DELETE or INSERT … SELECT with the condition `{held}`."""
    if "{held}" not in write:
        raise ValueError("a fenced write needs the condition {held}")
    return Statement(_REGISTER + write.replace("{held}", _HELD))
