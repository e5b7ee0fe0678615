"""What runs once although its handler runs again: `step`, `sleep` and `deferred`, as handlers call them.

Entities, singletons' contexts and ticks inherit them. They find the execution that runs here and leave
everything else to it; how it remembers is `durable`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from datetime import timedelta
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from redis_cluster_kit.entity.context import cluster_required
from redis_cluster_kit.entity.turn import current_turn

__all__ = ["Deferred", "Durable", "DurableRun", "Parked"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class DurableRun(Protocol):
    """One run of an execution: what durable calls of its code go to."""

    @property
    def parked(self) -> Parked | None: ...
    async def step(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Any: ...
    async def sleep(self, duration: timedelta, name: str | None, /) -> None: ...
    def token(self, name: str, /) -> str: ...
    async def wait(self, name: str, type: Any, /) -> Any: ...


class Parked(BaseException):
    """Ends a turn that waits durably: it is rolled back and run again when the wait is over.

    No `Exception`, so that a handler's `except Exception` lets it pass. A handler that catches it all the
    same changes nothing: its turn is parked when it ends.
    """

    def __init__(self, due_ms: int) -> None:
        super().__init__("the turn waits durably and leaves memory; let this pass")
        self.due_ms = due_ms
        """When it is to be woken at the latest, in milliseconds of `Clock.now()`."""


class Deferred(Generic[T]):
    """A value that comes from outside, once: hand out `token`, then await this.

    `await cluster.complete(token, value)` or `cluster.fail(token, text)` resolves it, from any pod, before
    or after somebody waits. The token is the same on every run.
    """

    __slots__ = ("_name", "_run", "_type")

    def __init__(self, run: Callable[[], DurableRun], name: str, type: Any) -> None:
        self._run = run
        self._name = name
        self._type = type

    def __repr__(self) -> str:
        return f"Deferred({self._name!r})"  # a token in a log would let its readers resolve it

    @property
    def token(self) -> str:
        """What resolves it: text that cannot be guessed, for a URL or a message to somebody outside."""
        return self._run().token(self._name)

    def __await__(self) -> Generator[Any, None, T]:
        """Wait durably; `DeferredFailedError` if it was failed, `MalformedMessageError` for another type."""
        return self._run().wait(self._name, self._type).__await__()


class Durable:
    """Durable calls: their results are remembered across crashes and takeovers.

    They belong to the execution that runs here: one message, one tick, or a singleton's work between two
    state writes. After a crash its code runs again from the top, and what is remembered is not run again.
    They need a database, and raise `ClusterContextRequired` outside of an execution.
    """

    @overload
    async def step(
        self, name: str, fn: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run `fn(*args)` once in this execution and return its result, now and in every later run.

        The result is read by `fn`'s return annotation; a sync `fn` runs in a thread. What `fn` raises is not
        remembered. The same name with other arguments is a `StepConflictError`. A crash between the end of
        `fn` and the record of its result lets `fn` run again: make it idempotent.
        """
        return await self._durable_run().step(name, fn, args, kwargs)

    async def sleep(self, duration: timedelta, /, *, name: str | None = None) -> None:
        """Wait for `duration`, over restarts; above a second the entity leaves memory meanwhile.

        Known by `name`, or by its place among the unnamed sleeps of this run: name those that stand in a
        branch or in tasks.
        """
        await self._durable_run().sleep(duration, name)

    def deferred(self, name: str, type: type[T], /) -> Deferred[T]:
        """Return the deferred of this name in this execution; its value is read as `type`.

        Classes and `list[int]`, no unions: type checkers refuse them there.
        """
        self._durable_run()
        return Deferred(self._durable_run, name, type)

    def _durable_run(self) -> DurableRun:
        turn = current_turn()
        run = None if turn is None else turn.durable_run()
        if run is None:
            raise cluster_required("a durable call (step, sleep, deferred)")
        return run
