"""The journal and the deferreds of one execution in the database, as its runs use them: fenced and patient.

A result that was worked for is not given up at the first failure of the database: recording is repeated for a
while, as a singleton's state write is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from redis_cluster_kit.errors import FencedError
from redis_cluster_kit.storage import (
    DeferredPlace,
    Deferreds,
    Entry,
    ExecutionClosedError,
    Journal,
    Place,
    Resolution,
)

from .patience import Patience
from .tokens import DeferredTokens

T = TypeVar("T")

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
        return await self.patiently(lambda timeout: self._open_as(self._place, timeout))

    async def record(self, entry: Entry, /) -> Entry:
        """Record an entry; return the one that stands. What belongs to an ended execution is not kept."""
        try:
            return await self.patiently(
                lambda timeout: self._journal.record(self._place, entry, timeout=timeout)
            )
        except ExecutionClosedError:
            return entry

    async def patiently(self, attempt: Callable[[float], Awaitable[T]]) -> T:
        """Repeat what is safe to repeat; `FencedError` if the shard is not ours any more."""
        try:
            return await self._patience.during(attempt, self._check)
        except FencedError as error:
            if self._lose is not None:
                self._lose(error)
            raise


class KnownDeferreds:
    """`DeferredPort` on the database."""

    def __init__(
        self,
        deferreds: Deferreds,
        tokens: DeferredTokens,
        place: Place,
        patience: Patience,
        check: Callable[[], None],
    ) -> None:
        self._deferreds = deferreds
        self._tokens = tokens
        self._place = place
        self._patience = patience
        self._check = check

    def token(self, name: str, /) -> str:
        """Return a deferred's token."""
        place = self._place
        return self._tokens.make(DeferredPlace(place.subject, place.execution, name, place.shard))

    async def read(self, name: str, /) -> Resolution | None:
        """Return what it was resolved with, None if it was not."""
        place = self._place
        return await self._patience.during(
            lambda timeout: self._deferreds.read(place.subject, place.execution, name, timeout=timeout),
            self._check,
        )
