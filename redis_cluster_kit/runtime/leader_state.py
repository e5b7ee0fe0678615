"""A leader's state: loaded from the durable half, saved there first, its copy in Redis repaired behind it.

One leader writes at a time, one write after the other. A write whose outcome is unknown is repeated under its
commit id; whatever version a later one then finds under its own fence and nonce was this leader's too.
"""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.codec import decode_best_effort
from redis_cluster_kit.entity import SingletonDefinition
from redis_cluster_kit.entity.singleton import DEEPEST
from redis_cluster_kit.errors import (
    Execution,
    FencedError,
    MalformedMessageError,
    PersistenceFailedError,
    SchemaDecodeFailedError,
    StateLoadFailedError,
    StatePersistFailedError,
)
from redis_cluster_kit.ownership import OwnedShard
from redis_cluster_kit.storage import Holder, SingletonStore, Version

from .singleton_counters import SingletonCounters

logger = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_LONGEST_REPAIR_PAUSE = 5.0


class LeaderState:
    """The state of one singleton during one leadership."""

    def __init__(
        self,
        definition: SingletonDefinition,
        store: SingletonStore,
        owned: OwnedShard,
        holder: Holder,
        counters: SingletonCounters,
        *,
        ttl: timedelta,
        attempt: timedelta,
        lose: Callable[[FencedError], None],
    ) -> None:
        self._definition = definition
        self._store = store
        self._owned = owned
        self._holder = holder
        self._counters = counters
        self._attempt_for = attempt.total_seconds()
        self._copy_for = ttl.total_seconds() / 10
        self._save_for = 2 * ttl.total_seconds()
        self._lose = lose
        self._content = b""
        self._version = 0
        self._saved_at = 0.0
        self._saving = anyio.Lock()
        self._commit_ids = itertools.count(1)
        self._is_copied = True
        self._uncopied = anyio.Event()
        self.trouble = ""
        """Why the last save failed; empty while all is well."""

    @property
    def version(self) -> int:
        """How often it has been saved."""
        return self._version

    def read(self) -> Any:
        """Return a copy of what was saved last."""
        return self._definition.decode(self._content)

    # Loading

    async def load(self) -> None:
        """Read the durable half; `StateLoadFailedError` if it cannot be read now."""
        if self._definition.state is None:
            return
        async with self._saving:
            try:
                with anyio.fail_after(self._attempt_for):
                    found = await self._store.load(self._holder, timeout=self._attempt_for)
                await self._take(found)
            except (PersistenceFailedError, TimeoutError) as error:
                self._counters.errors["StateLoadFailed"] += 1
                raise StateLoadFailedError(
                    singleton_name=self._holder.name,
                    detail=str(error) or f"no answer within {self._attempt_for:g} s",
                    cause=error,
                ) from error
        self._note_uncopied()

    async def _take(self, found: Version) -> None:
        """Decode what was found as far as it fits; what does not is kept aside before anything is written."""
        misfits: list[str] = []
        content = self._definition.first()
        if found.version:
            try:
                state = decode_best_effort(
                    found.body,
                    self._definition.state,
                    max_depth=DEEPEST,
                    on_misfit=lambda name, why: misfits.append(f"field {name!r}: {why}"),
                )
                content = self._definition.encode(state)
            except MalformedMessageError as error:
                misfits.append(error.detail)
        if misfits:
            await self._keep_aside(found, "; ".join(misfits))
        self._content = content
        self._version = found.version
        self._saved_at = Clock.boot() - found.age.total_seconds()

    async def _keep_aside(self, found: Version, why: str) -> None:
        await self._store.keep_aside(self._holder, found.version, why, timeout=self._attempt_for)
        self._counters.errors["SchemaDecodeFailed"] += 1
        error = SchemaDecodeFailedError(
            singleton_name=self._holder.name,
            detail=f"version {found.version}, schema {found.schema_version}, is kept aside: {why}",
        )
        logger.error("%s", error)

    # Saving

    async def write(self, change: Callable[[Any], Any]) -> None:
        """Save what `change` makes of the state; when this returns the durable half has it."""
        async with self._saving:
            content = self._definition.checked(change(self.read() if self._definition.state else None))
            try:
                self._version = await self._save(content)
            except FencedError as error:
                self._lose(error)
                raise
            self._content = content
            self._saved_at = Clock.boot()
            self.trouble = ""
            await self._copy_soon()

    async def _save(self, content: bytes) -> int:
        commit_id = f"{self._holder.nonce}-{self._holder.fence}-{next(self._commit_ids)}"
        deadline, pause, expected = Clock.boot() + self._save_for, _FIRST_PAUSE, self._version
        while True:
            self._owned.check()
            failure = await self._attempt(content, expected, commit_id)
            if isinstance(failure, int):
                return failure
            newer = await self._own_newer(failure, expected)
            if newer is not None:
                expected = newer
                continue
            is_over = Clock.boot() >= deadline or self._owned.ending.is_set()
            if is_over or not getattr(failure, "is_retryable", True):
                raise self._failed(failure) from failure
            await anyio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(_LONGEST_PAUSE, pause * 2)

    async def _attempt(self, content: bytes, expected: int, commit_id: str) -> int | Exception:
        """Try once; return the new version, or why there is none. `FencedError` is raised."""
        saving = self._store.save(
            self._holder,
            expected=expected,
            schema_version=self._definition.state_version,
            body=content,
            commit_id=commit_id,
            timeout=self._attempt_for,
        )
        try:
            # A write that has begun is brought to its end: a hand-off waits this long for it.
            with anyio.fail_after(self._attempt_for, shield=True):
                return await saving
        except (PersistenceFailedError, TimeoutError) as error:
            return error

    async def _own_newer(self, failure: Exception, expected: int) -> int | None:
        """Another version stands there: return it if an earlier write of ours, in doubt, made it."""
        if not isinstance(failure, PersistenceFailedError) or failure.execution is not Execution.REFUSED:
            return None
        if failure.is_retryable:
            return None
        try:
            with anyio.fail_after(self._attempt_for):
                found = await self._store.own_version(self._holder, timeout=self._attempt_for)
        except (PersistenceFailedError, TimeoutError):
            return None
        return None if found == expected else found

    def _failed(self, cause: Exception) -> StatePersistFailedError:
        self._counters.errors["StatePersistFailed"] += 1
        error = StatePersistFailedError(
            singleton_name=self._holder.name,
            is_retryable=getattr(cause, "is_retryable", True),
            detail=str(cause) or f"no answer within {self._attempt_for:g} s",
            cause=cause,
        )
        self.trouble = str(error)
        return error

    # The copy in Redis

    async def _copy_soon(self) -> None:
        """Write the copy now if Redis is quick, else leave it to `keep_copied`."""
        is_behind = not self._is_copied
        self._note_uncopied()
        if not is_behind:
            with anyio.move_on_after(self._copy_for):
                await self._copy()

    def _note_uncopied(self) -> None:
        self._is_copied = False
        self._uncopied.set()

    async def _copy(self) -> bool:
        content, version = self._content, self._version
        if not version:
            self._is_copied = True
            return True
        age = timedelta(seconds=max(0.0, Clock.boot() - self._saved_at))
        try:
            await self._store.copy(
                self._holder, Version(version, self._definition.state_version, content, age)
            )
        except FencedError as error:
            self._lose(error)
            return False
        except PersistenceFailedError as error:
            logger.warning(
                "singleton %s: the copy of its state in Redis is behind: %s", self._holder.name, error
            )
            return False
        self._is_copied = version == self._version
        return self._is_copied

    async def keep_copied(self) -> None:
        """Repair the copy whenever it is behind, for ever."""
        while True:
            await self._uncopied.wait()
            self._uncopied = anyio.Event()
            pause = _FIRST_PAUSE
            while not self._is_copied and not await self._copy():
                await anyio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(_LONGEST_REPAIR_PAUSE, pause * 2)

    def check_copy(self) -> None:
        """Write the copy again: it may have expired or been deleted."""
        self._note_uncopied()
