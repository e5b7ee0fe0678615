"""The two ways to wait for long: a turn leaves memory with a `Parked`, what cannot do that waits in it."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.entity import Parked
from redis_cluster_kit.errors import PersistenceFailedError
from redis_cluster_kit.storage import Resolution


class ParkingWaits:
    """Of an entity's turn that runs alone: it is rolled back, and run again when the wait is over."""

    def __init__(self) -> None:
        self._due: list[int] = []
        self.parked: Parked | None = None
        """Set when the turn is to be parked, whatever its handler makes of that."""

    @contextmanager
    def expecting(self, due_ms: int, /) -> Generator[None]:
        """Note a wait while it lasts: of several at once, the earliest wakes the turn."""
        self._due.append(due_ms)
        try:
            yield
        finally:
            self._due.remove(due_ms)

    async def until(self, _: int, /) -> None:
        """Leave memory until then."""
        raise self._park()

    async def resolved(self, _: Callable[[], Awaitable[Resolution | None]], /) -> Resolution:
        """Leave memory until somebody wakes the turn."""
        raise self._park()

    def _park(self) -> Parked:
        if self.parked is None:  # what the first has ended are no waits any more
            self.parked = Parked(min(self._due))
        return self.parked


class Bell:
    """Wakes what waits in memory: when something came for one of them, or the clock was moved."""

    def __init__(self) -> None:
        self._events: dict[str, anyio.Event] = {}

    def of(self, subject: str) -> anyio.Event:
        """Return the event that is set when something comes for `subject`."""
        found = self._events.get(subject)
        if found is None or found.is_set():
            found = self._events[subject] = anyio.Event()
        return found

    def ring(self, subject: str) -> None:
        """Something came for it."""
        event = self._events.pop(subject, None)
        if event is not None:
            event.set()

    def ring_all(self) -> None:
        """Let everybody look."""
        for subject in list(self._events):
            self.ring(subject)


class Woken(Protocol):
    """Notes that an execution knows of what was resolved for it."""

    async def __call__(self) -> None: ...


class MemoryWaits:
    """Of singletons, and of entities that handle several messages at once; the instant is durable, too.

    `ending`: the shard is handed off; the wait then ends with a `Parked`, which gives the message back.
    """

    parked: Parked | None = None

    def __init__(
        self,
        bell: Bell,
        subject: str,
        clock: Clock,
        *,
        poll: float,
        woken: Woken,
        ending: anyio.Event | None = None,
    ) -> None:
        self._bell = bell
        self._subject = subject
        self._clock = clock
        self._poll = poll
        self._woken = woken
        self._ending = ending

    def expecting(self, _: int, /) -> AbstractContextManager[None]:
        """Nothing to note: each wait is its own."""
        return nullcontext()

    async def until(self, due_ms: int, /) -> None:
        """Wait until then, also if a test moves the clock."""
        while (left := due_ms / 1000 - self._clock.now()) > 0:
            await self._pause(self._bell.of(self._subject), left)

    async def resolved(self, read: Callable[[], Awaitable[Resolution | None]], /) -> Resolution:
        """Wait until it is resolved; look now and then, for what should wake it may have died."""
        while True:
            event = self._bell.of(self._subject)
            try:
                found = await read()
            except PersistenceFailedError:
                found = None  # it is looked for again; health tells of a database that does not answer
            if found is not None:
                await self._woken()
                return found
            await self._pause(event, self._poll)

    async def _pause(self, event: anyio.Event, seconds: float) -> None:
        if self._ending is None:
            with anyio.move_on_after(seconds):
                await event.wait()
            return
        if not self._ending.is_set():
            with anyio.move_on_after(seconds):
                await _first(event.wait, self._ending.wait)
        if self._ending.is_set():
            raise Parked(0)


async def _first(*waits: Callable[[], Awaitable[None]]) -> None:
    async def one(wait: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
        await wait()
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        for wait in waits:
            tasks.start_soon(functools.partial(one, wait, tasks.cancel_scope))
