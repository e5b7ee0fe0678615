"""The journal and the deferreds of one execution, as its runs use them: fenced, repeated, with timeouts.

A result that was worked for is not given up at the first failure of the database: recording is repeated for a
while, as a singleton's state write is.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.errors import FencedError, PersistenceFailedError
from redis_cluster_kit.storage import (
    DeferredPlace,
    Deferreds,
    Entry,
    ExecutionClosedError,
    Journal,
    Place,
    Resolution,
)

from .tokens import DeferredTokens

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Patience(NamedTuple):
    """How long the database is waited for, in seconds."""

    attempt: float
    total: float


OpenAs = Callable[[Place, float], Awaitable[Sequence[Entry]]]
"""Begins or resumes an execution: given its place and a timeout, returns what is recorded of it."""


class Recording:
    """`JournalPort` on the database."""

    def __init__(
        self,
        journal: Journal,
        place: Place,
        patience: Patience,
        open_as: OpenAs,
        *,
        check: Callable[[], None],
        lose: Callable[[FencedError], None] | None = None,
    ) -> None:
        self._journal = journal
        self._place = place
        self._patience = patience
        self._open_as = open_as
        self._check = check
        self._lose = lose

    async def open(self) -> Sequence[Entry]:
        """Begin or resume the execution; return what is recorded."""
        return await self.patiently(lambda: self._open_as(self._place, self._patience.attempt))

    async def record(self, entry: Entry, /) -> Entry:
        """Record an entry; return the one that stands. What belongs to an ended execution is not kept."""
        timeout = self._patience.attempt
        try:
            return await self.patiently(lambda: self._journal.record(self._place, entry, timeout=timeout))
        except ExecutionClosedError:
            return entry

    async def patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat what is safe to repeat, for as long as a result is worth."""
        deadline, pause = Clock.boot() + self._patience.total, _FIRST_PAUSE
        while True:
            try:
                self._check()
                return await self._once(attempt)
            except FencedError as error:
                if self._lose is not None:
                    self._lose(error)
                raise
            except PersistenceFailedError as error:
                if not error.is_retryable or Clock.boot() >= deadline:
                    raise
            await anyio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(_LONGEST_PAUSE, pause * 2)

    async def _once(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What has begun is brought to its end: a hand-off waits this long for it."""
        seconds = self._patience.attempt
        try:
            with anyio.fail_after(seconds, shield=True):
                return await attempt()
        except TimeoutError as error:
            raise PersistenceFailedError(
                store="database", detail=f"no answer within {seconds:g} s", cause=error
            ) from error


class KnownDeferreds:
    """`DeferredPort` on the database."""

    def __init__(
        self, deferreds: Deferreds, tokens: DeferredTokens, place: Place, patience: Patience
    ) -> None:
        self._deferreds = deferreds
        self._tokens = tokens
        self._place = place
        self._patience = patience

    def token(self, name: str, /) -> str:
        """Return a deferred's token."""
        place = self._place
        return self._tokens.make(DeferredPlace(place.subject, place.execution, name, place.shard))

    async def read(self, name: str, /) -> Resolution | None:
        """Return what it was resolved with, None if it was not."""
        place = self._place
        return await self._deferreds.read(
            place.subject, place.execution, name, timeout=self._patience.attempt
        )
