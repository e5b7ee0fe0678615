"""A singleton's state and metadata in Redis: written fenced by its leader, read by anybody.

Beside a database this is a copy that may be lost; without one it is all there is. Which of the two, and what
a refusal means for the leader, is `write_through.py`'s.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.errors import FencedError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.redis_access import Keyspace, Lanes, Outcome, Script

from .sql_metadata import StoredMetadata

WRITE = Script.load("state/write")
ASIDE = Script.load("state/aside")
NOTE = Script.load("singleton/note")


@dataclass(frozen=True, slots=True)
class CachedState:
    """What Redis has of a state."""

    fence: int
    version: int
    schema_version: int
    body: bytes
    age: timedelta
    """How long ago it was saved, by the data Redis' clock."""


class RedisState:
    """The singletons of one namespace in the data Redis."""

    def __init__(self, lanes: Lanes, keyspace: Keyspace, clock: Clock, runner_id: str) -> None:
        self._lanes = lanes
        self._keyspace = keyspace
        self._clock = clock
        self._runner_id = runner_id

    async def write(
        self,
        name: str,
        shard: ShardId,
        *,
        fence: int,
        nonce: str,
        version: int,
        schema_version: int,
        body: bytes,
        age: timedelta,
        keep_ms: int | None,
    ) -> bool:
        """Write a version; False: an equal or newer one is there. `FencedError`: not the installed fence."""
        outcome = await WRITE(
            self._lanes,
            self._keyspace.slot(shard),
            fence=self._keyspace.fence(shard),
            state=self._keyspace.state(shard, name),
            number=str(fence),
            nonce=nonce,
            version=str(version),
            schema=schema_version,
            content=body,
            age=age // timedelta(milliseconds=1),
            keep=keep_ms or 0,
        )
        _check_fence(outcome, shard, fence)
        return outcome.word == "ok"

    async def keep_aside(self, name: str, shard: ShardId, *, fence: int, nonce: str, version: int) -> None:
        """Keep the bytes of this version where later writes leave them alone."""
        outcome = await ASIDE(
            self._lanes,
            self._keyspace.slot(shard),
            fence=self._keyspace.fence(shard),
            state=self._keyspace.state(shard, name),
            number=str(fence),
            nonce=nonce,
            version=str(version),
        )
        _check_fence(outcome, shard, fence)

    async def read(self, name: str, shard: ShardId) -> CachedState | None:
        """Return the state, None if there is none here."""
        fields = ("f", "v", "s", "b", "t")
        key = self._keyspace.state(shard, name)
        found = await self._lanes.call(self._keyspace.slot(shard), "HMGET", key, *fields, repeat=True)
        if found[3] is None:
            return None
        fence, version, schema, body, saved = found
        age = max(0, self._clock.server_ms() - int(saved or 0)) if saved else 0
        return CachedState(int(fence), int(version), int(schema), body, timedelta(milliseconds=age))

    async def note(
        self,
        name: str,
        shard: ShardId,
        metadata: StoredMetadata,
        *,
        fence: int,
        nonce: str,
        keep_ms: int | None,
    ) -> None:
        """Note what the system keeps; `FencedError`: not the installed fence."""
        words: dict[str, Any] = {
            field: "" if value is None else str(value) for field, value in asdict(metadata).items()
        }
        outcome = await NOTE(
            self._lanes,
            self._keyspace.slot(shard),
            fence=self._keyspace.fence(shard),
            singleton=self._keyspace.singleton(shard, name),
            state=self._keyspace.state(shard, name),
            number=str(fence),
            nonce=nonce,
            runner=self._runner_id,
            keep=keep_ms or 0,
            **words,
        )
        _check_fence(outcome, shard, fence)

    async def read_note(self, name: str, shard: ShardId) -> StoredMetadata | None:
        """Return what is noted, None before anything is."""
        fields = ("since", "last_run", "run_count", "last_error", "failed_at", "heartbeat")
        key = self._keyspace.singleton(shard, name)
        found = await self._lanes.call(self._keyspace.slot(shard), "HMGET", key, *fields, repeat=True)
        if found[0] is None:
            return None
        since, last_run, count, error, failed_at, heartbeat = (field.decode() for field in found)
        return StoredMetadata(
            since=int(since),
            last_run=int(last_run) if last_run else None,
            run_count=int(count),
            last_error=error or None,
            failed_at=int(failed_at) if failed_at else None,
            heartbeat=int(heartbeat),
        )


def _check_fence(outcome: Outcome, shard: ShardId, fence: int) -> None:
    if outcome.word in ("fenced", "unfenced"):
        raise FencedError(shard=str(shard), fence=fence, store="redis", detail=outcome.word)
