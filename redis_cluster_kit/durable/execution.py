"""One run of an execution: durable calls find what was recorded before, or do their part and record it.

The journal is read once, with the first durable call of the run. Where and when an execution runs, and what
becomes of its turn when it waits, is not known here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Protocol

import anyio
import anyio.lowlevel

from redis_cluster_kit import codec
from redis_cluster_kit.clock import Clock
from redis_cluster_kit.entity import Parked
from redis_cluster_kit.errors import (
    DeferredFailedError,
    MalformedMessageError,
    PayloadTooLargeError,
    StepConflictError,
)
from redis_cluster_kit.settings import DurableSettings
from redis_cluster_kit.storage import Entry, Resolution
from redis_cluster_kit.telemetry import TRACING

from .counters import DurableCounters
from .functions import call, digest, input_of, result_type
from .journal_port import DeferredPort, JournalPort

_IN_PLACE_MS = 1000
_MS = timedelta(milliseconds=1)
_LONGEST_NAME = 256
_PASSES = 3
"""How often the event loop goes round before a run parks, so that its other tasks come to their own waits."""
_STEP: ContextVar[str | None] = ContextVar("rck_step", default=None)


class Waits(Protocol):
    """How a run waits for long: a turn leaves memory, a singleton stays."""

    @property
    def parked(self) -> Parked | None: ...
    def expecting(self, due_ms: int, /) -> AbstractContextManager[None]: ...
    async def until(self, due_ms: int, /) -> None: ...
    async def resolved(self, read: Callable[[], Awaitable[Resolution | None]], /) -> Resolution: ...


class Execution:
    """Durable calls of one run; `entity.DurableRun` in the flesh. Several may go on at once."""

    def __init__(
        self,
        execution: str,
        journal: JournalPort,
        deferreds: DeferredPort,
        waits: Waits,
        clock: Clock,
        settings: DurableSettings,
        counters: DurableCounters,
        *,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.id = execution
        self._journal = journal
        self._deferreds = deferreds
        self._waits = waits
        self._clock = clock
        self._settings = settings
        self._counters = counters
        self._before = before
        self._known: dict[tuple[str, str], Entry] = {}
        self._opening = anyio.Lock()
        self._locks: dict[str, anyio.Lock] = {}
        self._awaited: set[str] = set()
        self._sleeps = 0
        self._busy = 0
        self.is_open = False
        """Whether its journal was read, and so may hold something."""

    # What handlers call

    async def step(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Any:
        """Return the recorded result, or run `fn` and record what it returns."""
        _check_call("step", name)
        kind, input = result_type(name, fn), input_of(name, args, kwargs)
        with self._at_work():
            await self._open()
            # Two tasks that call the same step get one result; the second waits for the first.
            async with self._locks.setdefault(name, anyio.Lock()):
                known = self._recall("step", name, input)
                if known is None:
                    known = await self._run_step(name, fn, args, kwargs, input)
                else:
                    self._counters.steps_replayed += 1
                self._check_input(known, input)
        return _decoded(f"step {name!r}", known.value, kind)

    async def sleep(self, duration: timedelta, name: str | None, /) -> None:
        """Wait until the instant that the first run has recorded."""
        if not isinstance(duration, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"sleep takes a timedelta, got {duration!r}")
        if duration > self._settings.longest_wait:
            longest = self._settings.longest_wait
            raise ValueError(f"sleep({duration}) is above DurableSettings.longest_wait ({longest})")
        if name is None:
            self._sleeps += 1
            name = f"#{self._sleeps}"
        _check_call("sleep", name)
        with self._at_work():
            await self._open()
            input = digest(codec.encode(duration))
            known = self._recall("sleep", name, input)
            if known is None:
                ends = self._clock.now_ms() + max(0, duration // _MS)
                known = await self._record(Entry("sleep", name, input, codec.encode(ends)))
                self._check_input(known, input)
            ends = codec.decode(known.value, int)
        if (left := ends - self._clock.now_ms()) <= 0:
            await anyio.lowlevel.checkpoint()
            return
        with self._waits.expecting(ends):
            if left <= _IN_PLACE_MS:
                await anyio.sleep(left / 1000)
                return
            await self._settle()
            await self._waits.until(ends)

    def token(self, name: str, /) -> str:
        """Return the token of a deferred."""
        _check_name("deferred", name)
        return self._deferreds.token(name)

    async def wait(self, name: str, type: Any, /) -> Any:
        """Wait until a deferred is resolved; return its value."""
        _check_call("deferred", name)
        with self._at_work():
            await self._open()
            found = await self._deferreds.read(name)
        if found is None:
            self._awaited.add(name)
            with self._waits.expecting(self._clock.now_ms() + self._settings.longest_wait // _MS):
                await self._settle()
                found = await self._waits.resolved(lambda: self._deferreds.read(name))
        if found.value is None:
            raise DeferredFailedError(name=name, text=found.failure or "")
        return _decoded(f"deferred {name!r}", found.value, type)

    # What its runner asks

    @property
    def parked(self) -> Parked | None:
        """The wait that the turn is to be parked for, whatever its handler has made of it."""
        return self._waits.parked

    async def is_resolved(self) -> bool:
        """Look again whether something this run waits for has come: it may have, just before it parked."""
        for name in self._awaited:
            if await self._deferreds.read(name) is not None:
                return True
        return False

    # Inside

    async def _open(self) -> None:
        """Read the journal, once a run; somebody must have noted before who runs this."""
        if not self.is_open:
            async with self._opening:
                await self._read_journal()

    async def _read_journal(self) -> None:
        if self.is_open:
            return
        if self._before is not None:
            await self._before()
        for entry in await self._journal.open():
            self._known[entry.what, entry.name] = entry
        self.is_open = True

    def _recall(self, what: str, name: str, input: str) -> Entry | None:
        known = self._known.get((what, name))
        if known is not None:
            self._check_input(known, input)
        return known

    def _check_input(self, known: Entry, input: str) -> None:
        if known.input != input:
            self._counters.step_conflicts += 1
            raise StepConflictError(name=known.name, execution=self.id)

    async def _run_step(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], input: str
    ) -> Entry:
        token = _STEP.set(name)
        try:
            with nullcontext() if TRACING.tracer is None else TRACING.inside(f"step.{name}"):
                result = await call(fn, args, kwargs)
        except Exception:
            self._counters.steps_failed += 1
            raise
        finally:
            _STEP.reset(token)
        try:
            value = codec.encode(result, limit=self._settings.result_limit)
        except PayloadTooLargeError as error:
            raise PayloadTooLargeError(
                size=error.size, limit=error.limit, detail=f"the result of step {name!r}"
            ) from error
        recorded = await self._record(Entry("step", name, input, value))
        self._counters.steps_run += 1
        return recorded

    async def _record(self, entry: Entry) -> Entry:
        standing = await self._journal.record(entry)
        self._known[entry.what, entry.name] = standing
        return standing

    @contextmanager
    def _at_work(self) -> Generator[None]:
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    async def _settle(self) -> None:
        """Before a run parks its other tasks finish their steps: what is cancelled half-way runs again."""
        passes = 0
        while passes < _PASSES:
            await anyio.lowlevel.checkpoint()
            if self._busy:
                await anyio.sleep(0.005)
                passes = 0
            passes += 1


def _decoded(what: str, value: bytes, kind: Any) -> Any:
    try:
        return codec.decode(value, kind)
    except MalformedMessageError as error:
        raise MalformedMessageError(
            detail=f"{what}: expected {kind!r}, and what was recorded is none: {error.detail}", cause=error
        ) from error


def _check_call(what: str, name: str) -> None:
    _check_name(what, name)
    if (outer := _STEP.get()) is not None:
        raise RuntimeError(
            f"{what} {name!r} was called inside step {outer!r}: durable calls do not nest; call it from the "
            "handler, or let the step be a plain function"
        )


def _check_name(what: str, name: str) -> None:
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the name of a {what} is text, got {name!r}")
    if not 1 <= len(name.encode()) <= _LONGEST_NAME or not name.isprintable():
        raise ValueError(
            f"the name of a {what} is 1 to {_LONGEST_NAME} bytes of printable text, got {name!r}"
        )
