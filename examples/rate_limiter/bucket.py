"""The token bucket: an entity whose answers are values, not errors, since "not now" is an everyday answer.

A bucket's state stays in Redis until `cluster.delete(Bucket, key)`. Where ids come from outside without bound
(addresses, say), make it an `Entity[None]` that keeps the two numbers on `self`: nothing is then written,
and a takeover begins with full buckets.
"""

from __future__ import annotations

import time
from datetime import timedelta

import msgspec

from redis_cluster_kit import Entity, rpc


class Limit(msgspec.Struct, frozen=True):
    """How much is allowed. It comes with every call, so that a deploy changes it and nothing is migrated."""

    burst: int
    per_second: float


class Allowed(msgspec.Struct, frozen=True, tag=True):
    """Go on; `left` more at once would be allowed too."""

    left: int


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Not now; the same call is allowed after `retry_after` seconds if nobody else takes the tokens."""

    retry_after: float


class WallClock:
    """The owner's clock; `lifespan` provides it, so that a test can provide another one."""

    def now(self) -> float:
        return time.time()


class Level(msgspec.Struct):
    """What is missing from a full bucket, and when that was so."""

    missing: float = 0.0
    at: float = 0.0


class Bucket(Entity[Level], name="bucket", max_idle=timedelta(minutes=1)):
    """The tokens of one key. Its mailbox decides who comes first: no locks, no races between pods."""

    @rpc
    async def take(self, limit: Limit, tokens: int = 1) -> Allowed | Refused:
        """Take tokens, or say when they will be there; a refusal takes nothing."""
        if tokens > limit.burst:
            raise ValueError(f"{tokens} tokens are never in a bucket of {limit.burst}")
        missing = self._missing(limit)
        short = missing + tokens - limit.burst
        if short > 0:
            return Refused(retry_after=short / limit.per_second)
        self.state = Level(missing + tokens, self.resource(WallClock).now())
        return Allowed(left=int(limit.burst - self.state.missing))

    @rpc(readonly=True)
    async def left(self, limit: Limit) -> int:
        """Look without taking."""
        return int(limit.burst - self._missing(limit))

    def _missing(self, limit: Limit) -> float:
        """What is not refilled yet. A clock that is behind, on the next owner's host say, refills nothing."""
        since = max(0.0, self.resource(WallClock).now() - self.state.at)
        return max(0.0, self.state.missing - since * limit.per_second)
