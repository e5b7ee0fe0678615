"""A singleton's durable half and its copy in Redis, in the one order that loses nothing: database first.

A leader loads and saves through the durable half alone; the copy is written after it, may fail, and is
repaired by whoever holds the state. Without a database Redis is the durable half: the weaker tier, as durable
as Redis' own memory. This module decides nothing about leading.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from redis_cluster_kit.errors import Execution, PersistenceFailedError
from redis_cluster_kit.identity import ShardId

from .leftovers import Leftovers
from .redis_state import CachedState, RedisState
from .sql_metadata import SqlMetadata, StoredMetadata
from .sql_state import SqlState


class Holder(NamedTuple):
    """Whose write it is: the singleton and its shard's present owner."""

    name: str
    shard: ShardId
    fence: int
    nonce: str
    keep_ms: int | None = None
    """How long the state is kept when nobody serves the singleton any more; None: for ever."""


@dataclass(frozen=True, slots=True)
class Version:
    """A state as it stands: 0 stands for none yet."""

    version: int
    schema_version: int = 0
    body: bytes = b""
    age: timedelta = timedelta()


NOTHING = Version(0)


class SingletonStore:
    """The states and metadata of one namespace's singletons."""

    def __init__(
        self,
        cache: RedisState,
        state: SqlState | None,
        metadata: SqlMetadata | None,
        leftovers: Leftovers | None,
    ) -> None:
        self.cache = cache
        self._state = state
        self._metadata = metadata
        self._leftovers = leftovers

    @property
    def has_database(self) -> bool:
        """Whether Redis holds copies only."""
        return self._state is not None

    async def load(self, holder: Holder, *, timeout: float) -> Version:
        """Return what a leader begins with; a state whose `state_ttl` has passed is forgotten before."""
        if self._state is None:
            return _version(await self.cache.read(holder.name, holder.shard))
        if self._leftovers is not None and holder.keep_ms is not None:
            await self.forget_expired(holder, timeout=timeout)
        return await self._read_sql(holder.name, timeout)

    async def read(self, name: str, shard: ShardId, *, fresh: bool, timeout: float) -> Version:
        """Return the state as anybody may see it; `fresh`: what the durable half has, and not the copy."""
        if self._state is None:
            return _version(await self.cache.read(name, shard))
        if not fresh:
            try:
                found = await self.cache.read(name, shard)
            except PersistenceFailedError:
                found = None
            if found is not None:
                return _version(found)
        return await self._read_sql(name, timeout)

    async def save(
        self,
        holder: Holder,
        *,
        expected: int,
        schema_version: int,
        body: bytes,
        commit_id: str,
        timeout: float,
    ) -> int:
        """Save the version after `expected`; return its number. `FencedError`: somebody else leads.

        After an `UNKNOWN` failure call again with the same `commit_id`.
        """
        if self._state is None:
            return await self._save_in_redis(holder, expected, schema_version, body)
        written = await self._state.write(
            holder.name,
            holder.shard,
            fence=holder.fence,
            nonce=holder.nonce,
            expected_version=expected,
            body=body,
            schema_version=schema_version,
            commit_id=commit_id,
            timeout=timeout,
        )
        return written.version

    async def own_version(self, holder: Holder, *, timeout: float) -> int | None:
        """Return the number of the last version if this very leader wrote it: the end of a write in doubt."""
        if self._state is None:
            found = await self.cache.read(holder.name, holder.shard)
            return found.version if found is not None and found.fence == holder.fence else None
        stored = await self._state.read(holder.name, timeout=timeout)
        if stored is None or (stored.fence, stored.nonce) != (holder.fence, holder.nonce):
            return None
        return stored.version

    async def copy(self, holder: Holder, version: Version) -> None:
        """Make Redis' copy say what the database has; nothing to do without one."""
        if self._state is not None:
            await self._write_cache(holder, version)

    async def keep_aside(self, holder: Holder, version: int, reason: str, *, timeout: float) -> None:
        """Keep a state that could not be decoded where later writes leave it alone."""
        if self._leftovers is None:
            await self.cache.keep_aside(
                holder.name, holder.shard, fence=holder.fence, nonce=holder.nonce, version=version
            )
            return
        await self._leftovers.keep_aside(
            holder.name,
            holder.shard,
            version=version,
            reason=reason,
            fence=holder.fence,
            nonce=holder.nonce,
            timeout=timeout,
        )

    # What nobody serves any more

    async def expired(self, *, timeout: float) -> list[tuple[str, ShardId]]:
        """Return singletons nobody has served for their `state_ttl`; in Redis states expire by themselves."""
        return [] if self._leftovers is None else await self._leftovers.expired(timeout=timeout)

    async def forget_expired(self, holder: Holder, *, timeout: float) -> bool:
        """Forget a state if its time has passed and the shard is the holder's; return whether."""
        if self._leftovers is None:
            return False
        return await self._leftovers.forget_expired(
            holder.name, holder.shard, fence=holder.fence, nonce=holder.nonce, timeout=timeout
        )

    # Metadata

    async def note(self, holder: Holder, metadata: StoredMetadata, *, timeout: float) -> None:
        """Note it in the durable half."""
        if self._metadata is None:
            await self.copy_note(holder, metadata)
            return
        await self._metadata.note(
            holder.name,
            holder.shard,
            metadata,
            fence=holder.fence,
            nonce=holder.nonce,
            keep_ms=holder.keep_ms,
            timeout=timeout,
        )

    async def copy_note(self, holder: Holder, metadata: StoredMetadata) -> None:
        """Note it in Redis."""
        await self.cache.note(
            holder.name,
            holder.shard,
            metadata,
            fence=holder.fence,
            nonce=holder.nonce,
            keep_ms=holder.keep_ms,
        )

    async def read_note(
        self, name: str, shard: ShardId, *, fresh: bool, timeout: float
    ) -> StoredMetadata | None:
        """Return what is noted, None before anything is."""
        if self._metadata is None:
            return await self.cache.read_note(name, shard)
        if not fresh:
            try:
                found = await self.cache.read_note(name, shard)
            except PersistenceFailedError:
                found = None
            if found is not None:
                return found
        return await self._metadata.read(name, timeout=timeout)

    async def places(self, *, timeout: float) -> dict[str, ShardId]:
        """Return every singleton the database knows, with its shard; none without one."""
        return {} if self._metadata is None else await self._metadata.places(timeout=timeout)

    async def _read_sql(self, name: str, timeout: float) -> Version:
        assert self._state is not None
        stored = await self._state.read(name, timeout=timeout)
        if stored is None:
            return NOTHING
        return Version(stored.version, stored.schema_version, stored.body, stored.age)

    async def _write_cache(self, holder: Holder, version: Version) -> bool:
        return await self.cache.write(
            holder.name,
            holder.shard,
            fence=holder.fence,
            nonce=holder.nonce,
            version=version.version,
            schema_version=version.schema_version,
            body=version.body,
            age=version.age,
            keep_ms=holder.keep_ms,
        )

    async def _save_in_redis(self, holder: Holder, expected: int, schema_version: int, body: bytes) -> int:
        """Only this leader writes under its fence: what is as new as this is an earlier try of its own."""
        version = expected + 1
        if await self._write_cache(holder, Version(version, schema_version, body)):
            return version
        found = await self.cache.read(holder.name, holder.shard)
        if found is not None and (found.version, found.body) == (version, body):
            return version
        raise PersistenceFailedError(
            store="redis",
            execution=Execution.REFUSED,
            is_retryable=False,
            detail=f"state of singleton {holder.name!r}: version {version} is there already",
        )


def _version(found: CachedState | None) -> Version:
    return NOTHING if found is None else Version(found.version, found.schema_version, found.body, found.age)
