"""The executions of one singleton during one leadership: which is open, how it ends, when it is set aside.

A singleton that makes no durable call pays one read a leadership for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio

from redis_cluster_kit.durable import Execution, Recording
from redis_cluster_kit.errors import (
    DatabaseRequiredError,
    FencedError,
    PersistenceFailedError,
    StepConflictError,
)
from redis_cluster_kit.ownership import OwnedShard
from redis_cluster_kit.storage import Entry, Place, Round

from .execution_stores import SINGLETON
from .executions import Executions

logger = logging.getLogger(__name__)

_LONGEST_ERROR = 2000


class LeaderExecutions:
    """What a leader asks about the executions of its singleton."""

    def __init__(
        self,
        name: str,
        executions: Executions,
        owned: OwnedShard,
        version: Callable[[], int],
        lose: Callable[[FencedError], None],
    ) -> None:
        self._name = name
        self._executions = executions
        self._owned = owned
        self._version = version
        self._lose = lose
        self._round = Round()
        self._run: Execution | None = None
        self._recording: Recording | None = None

    async def load(self) -> None:
        """Find out which execution is open; the run before has ended."""
        self._run = None
        if self._executions.has_stores:
            stores = self._executions.stores
            self._round = await stores.singletons.round(self._name, timeout=stores.patience.attempt)

    def run(self) -> Execution:
        """Return the run of the open execution, made with the first durable call."""
        if self._run is None:
            if not self._executions.has_stores:
                raise DatabaseRequiredError
            place = self._place()
            waits = self._executions.waits_in_memory(place, None)
            self._recording = self._executions.recording(
                place, self._open, check=self._owned.check, lose=self._lose
            )
            self._run = self._executions.run(place, self._recording, waits, check=self._owned.check)
        return self._run

    async def _open(self, place: Place, timeout: float) -> list[Entry]:
        executions = self._executions
        found = await executions.stores.singletons.open(
            self._name, place, self._version(), keep_ms=executions.keep_ms, timeout=timeout
        )
        return list(found)

    def _place(self) -> Place:
        owned = self._owned
        execution = self._round.execution(self._version())
        return Place(SINGLETON + self._name, execution, owned.shard, owned.fence, owned.nonce)

    # Their end

    def saved(self) -> None:
        """A state write has opened the next one, by its version."""
        run, self._run = self._run, None
        if run is not None and run.is_open:
            self._executions.ended(SINGLETON + self._name, run.id)

    async def close(self) -> None:
        """A round of `every` or the function is done: what it did is past, also without a state write."""
        run = self._run
        if run is None or not run.is_open:
            self._run = None
            return
        assert self._recording is not None
        place, number = self._place_of(run), self._round.number
        stores = self._executions.stores
        await self._recording.patiently(
            lambda timeout: stores.singletons.close(self._name, place, number, timeout=timeout)
        )
        self._round = Round(number + 1)
        self.saved()

    async def failed(self, error: BaseException) -> None:
        """The function raised: count it against its execution, and set that aside when it is too much."""
        run = self._run
        if run is None or not run.is_open or not self._owned.is_held:
            return
        with anyio.CancelScope(shield=True):
            try:
                await self._count(run, error)
            except FencedError as fenced:
                self._lose(fenced)
            except (PersistenceFailedError, TimeoutError) as trouble:
                logger.warning("a failure of %s was not counted: %s", self._name, trouble)

    async def _count(self, run: Execution, error: BaseException) -> None:
        stores, place = self._executions.stores, self._place_of(run)
        text = f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]
        timeout = stores.patience.attempt
        failures = await stores.singletons.failed(place, text, timeout=timeout)
        most = self._executions.settings.max_attempts
        if failures < most and not isinstance(error, StepConflictError):
            return
        await stores.singletons.set_aside(self._name, place, self._round.number, timeout=timeout)
        self._executions.counters.executions_aside += 1
        logger.error(
            "execution %s@%s is set aside after %d failures; cluster.executions has it: %s",
            run.id,
            self._name,
            failures,
            text,
        )

    def _place_of(self, run: Execution) -> Place:
        owned = self._owned
        return Place(SINGLETON + self._name, run.id, owned.shard, owned.fence, owned.nonce)
