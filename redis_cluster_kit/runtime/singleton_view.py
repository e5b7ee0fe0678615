"""A singleton as any pod may look at it: its state with version and age, and what the system keeps of it."""

from __future__ import annotations

from typing import TypeVar

import anyio

from redis_cluster_kit.codec import decode_best_effort
from redis_cluster_kit.entity import SingletonMetadata, SingletonState
from redis_cluster_kit.entity.singleton import DEEPEST
from redis_cluster_kit.errors import (
    MalformedMessageError,
    PersistenceFailedError,
    SchemaDecodeFailedError,
    StateLoadFailedError,
)
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.storage import SingletonStore

from .leader_notes import metadata_of

S = TypeVar("S")


class SingletonView:
    """Reads what leaders write; it never writes."""

    def __init__(self, store: SingletonStore, timeout: float) -> None:
        self._store = store
        self._timeout = timeout

    async def state(
        self, name: str, shard: ShardId, type: type[S], *, fresh: bool
    ) -> SingletonState[S] | None:
        """Return the state, None before anything was saved."""
        try:
            with anyio.fail_after(2 * self._timeout):
                found = await self._store.read(name, shard, fresh=fresh, timeout=self._timeout)
        except (PersistenceFailedError, TimeoutError) as error:
            raise _not_loaded(name, error) from error
        if not found.version:
            return None
        try:
            state = decode_best_effort(found.body, type, max_depth=DEEPEST)
        except MalformedMessageError as error:
            raise SchemaDecodeFailedError(singleton_name=name, detail=error.detail, cause=error) from error
        return SingletonState(
            state=state, version=found.version, age=found.age, schema_version=found.schema_version
        )

    async def metadata(self, name: str, shard: ShardId, *, fresh: bool) -> SingletonMetadata | None:
        """Return what the system keeps, None if nobody has led it yet."""
        try:
            with anyio.fail_after(2 * self._timeout):
                noted = await self._store.read_note(name, shard, fresh=fresh, timeout=self._timeout)
        except (PersistenceFailedError, TimeoutError) as error:
            raise _not_loaded(name, error) from error
        return None if noted is None else metadata_of(noted)


def _not_loaded(name: str, error: Exception) -> StateLoadFailedError:
    return StateLoadFailedError(singleton_name=name, detail=str(error) or "no answer in time", cause=error)
