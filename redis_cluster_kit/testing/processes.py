"""Real child processes for fault tests: told what to do, watched by facts, killed, stopped and woken.

A signal counts as given when its effect is seen (the kernel's state letter, the exit), and its time is
kept. What the child says comes through `child_events`. Linux only: it reads /proc.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from redis_cluster_kit.clock import Clock

if TYPE_CHECKING:
    from .forking import ForkedProcess, ForkServer

T = TypeVar("T")
Started: TypeAlias = "asyncio.subprocess.Process | ForkedProcess"

forking: list[ForkServer] = []
"""Where children may come from that are not started anew."""

_TAIL = 60
_POLL = 0.002
_LAST_WORDS = 2.0
# Not `-m`: the module is imported by its package already, and runpy warns of that.
_WAY_IN = "import sys; from redis_cluster_kit.testing.child_events import main; main(*sys.argv[1:])"
_LIMIT = 2**24


class ChildExitedError(Exception):
    """A child ended while something was expected of it."""

    def __init__(self, *, name: str, code: int | None, expected: str, tail: str) -> None:
        self.name = name
        self.code = code
        self.tail = tail
        super().__init__(
            f"expected {expected} from {name!r}, but it exited with {code}; its last lines:\n{tail}"
        )


class NoEventError(TimeoutError):
    """A child lives but did not say or do in time what was awaited."""

    def __init__(
        self, *, name: str, expected: str, timeout: float, state: str, seen: Sequence[str], tail: str
    ) -> None:
        super().__init__(
            f"expected {expected} from {name!r} within {timeout} s; its state is {state}, "
            f"its last events were {list(seen)}, its last lines:\n{tail}"
        )


@dataclass(frozen=True, slots=True)
class ChildEvent:
    """A fact a child emitted; `event["shard"]` reads a field."""

    name: str
    t_boot: float
    fields: Mapping[str, Any]

    def __getitem__(self, field: str) -> Any:
        return self.fields[field]

    def has(self, fields: Mapping[str, Any]) -> bool:
        """Whether it carries these fields with these values."""
        return all(name in self.fields and self.fields[name] == value for name, value in fields.items())


@dataclass(frozen=True, slots=True)
class SignalRecord:
    """A signal: when it was sent and when its effect was seen (SIGTERM has none), on the boot clock."""

    signal: signal.Signals
    sent: float
    seen: float | None


class ChildProcess:
    """A Python process under test: `async with ChildProcess("package.module:function", "arg") as child:`.

    The target is a module, a `.py` file, or either with `:function` (sync or async). On its import path comes
    `pythonpath` first (a mutated tree), then the parent's PYTHONPATH; the working directory is not there. It
    is killed at the end of the block, and with the test process. Start it from a thread that lives as long.
    """

    def __init__(
        self,
        target: str,
        *arguments: str,
        name: str = "",
        env: Mapping[str, str] | None = None,
        pythonpath: Sequence[Path | str] = (),
        cwd: Path | str | None = None,
    ) -> None:
        self.name = name or target
        self.events: list[ChildEvent] = []
        """Everything it emitted so far."""
        self.signals: list[SignalRecord] = []
        self._arguments = (target, *arguments)
        self._env = {**os.environ, **(env or {})}
        paths = [str(path) for path in pythonpath]
        if inherited := self._env.get("PYTHONPATH"):
            paths.append(inherited)
        if paths:
            self._env["PYTHONPATH"] = os.pathsep.join(paths)
        self._cwd = cwd
        self._tail: deque[str] = deque(maxlen=_TAIL)
        self._taken: set[int] = set()
        self._news = asyncio.Condition()
        self._silent = False
        self._readers: list[asyncio.Task[None]] = []
        self._process: Started | None = None
        self._exit_expected = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._running.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, minus the signal that killed it, or None while it lives."""
        return self._running.returncode

    @property
    def state(self) -> str:
        """The kernel's letter for it: `R` or `S` at work, `T` stopped, `Z` or `gone` dead."""
        return process_state(self.pid)

    @property
    def tail(self) -> str:
        """The last lines it wrote to stderr or printed."""
        return "\n".join(self._tail)

    async def wait_for(
        self,
        name: str,
        /,
        *,
        timeout: float = 30.0,
        after: float = 0.0,
        where: Callable[[ChildEvent], bool] | None = None,
        **fields: Any,
    ) -> ChildEvent:
        """Wait for an event of this name with these field values, and return it; no event is returned twice.

        `after` is a time on the boot clock (a signal's `sent`, say): earlier events do not count. What does
        not fit stays for other waits. If none comes, the error shows the last events and the child's stderr.
        """

        def found() -> ChildEvent | None:
            for index, event in enumerate(self.events):
                fits = event.name == name and event.t_boot >= after and event.has(fields)
                if fits and index not in self._taken and (where is None or where(event)):
                    self._taken.add(index)
                    return event
            return None

        async def said() -> ChildEvent:
            async with self._news:
                while (event := found()) is None:
                    if self._silent:
                        await self._running.wait()
                        await self._read_to_the_end(self._readers[1:])
                        raise self._exited(f"event {name!r}")
                    await self._news.wait()
                return event

        return await self._within(timeout, f"event {name!r}", said)

    async def send(self, command: Any) -> None:
        """Hand it a JSON value, for its `commands()`."""
        assert self._running.stdin is not None
        try:
            self._running.stdin.write(json.dumps(command).encode() + b"\n")
            await self._running.stdin.drain()
        except ConnectionError as error:
            raise self._exited("to be there for a command") from error

    async def kill(self) -> SignalRecord:
        """SIGKILL; return when it is dead."""
        return await self._signal(signal.SIGKILL, "death by SIGKILL", lambda: self.returncode is not None)

    async def stop(self) -> SignalRecord:
        """SIGSTOP; return when the kernel says it is stopped."""
        return await self._signal(signal.SIGSTOP, "to be stopped", lambda: self.state == "T")

    async def wake(self) -> SignalRecord:
        """SIGCONT; return when the kernel says it is no longer stopped."""
        return await self._signal(signal.SIGCONT, "to go on", lambda: self.state != "T")

    def terminate(self) -> SignalRecord:
        """SIGTERM; what it does then is its own affair: `wait()` for the exit."""
        self._exit_expected = True
        return self._record(signal.SIGTERM, None)

    async def wait(self, *, timeout: float = 30.0) -> int:
        """Wait for its exit; return the code."""
        self._exit_expected = True
        code = await self._within(timeout, "its exit", self._running.wait)
        await self._read_to_the_end(self._readers)
        return code

    async def __aenter__(self) -> Self:
        self._process = await self._start()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            asyncio.create_task(self._read_events(self._process.stdout)),
            asyncio.create_task(self._read_errors(self._process.stderr)),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        crashed = self._running.returncode not in (None, 0) and not self._exit_expected
        if self._running.returncode is None:
            self._running.kill()
        await self._running.wait()
        await self._read_to_the_end(self._readers)
        if self._running.stdin is not None:
            self._running.stdin.close()
        if not isinstance(self._running, asyncio.subprocess.Process):
            self._running.close()
        if crashed and kind is None:
            raise self._exited("to live to the end of its block")

    async def _start(self) -> Started:
        for server in forking:
            if server.may(self._env):
                return await server.start(self._arguments, self._env, self._cwd, _LIMIT)
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-X", "faulthandler", "-P", "-c", _WAY_IN),
            str(os.getpid()),
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._env,
            cwd=self._cwd,
            limit=_LIMIT,
        )

    @property
    def _running(self) -> Started:
        if self._process is None:
            raise RuntimeError(f"the child {self.name!r} is not started: use `async with`")
        return self._process

    async def _signal(self, number: signal.Signals, expected: str, seen: Callable[[], bool]) -> SignalRecord:
        self._exit_expected = self._exit_expected or number == signal.SIGKILL
        if self.returncode is not None:
            raise self._exited(expected)

        async def effect() -> None:
            while not seen():  # noqa: ASYNC110 - the kernel tells nobody that it stopped a process
                await asyncio.sleep(_POLL)

        sent = Clock.boot()
        self._running.send_signal(number)
        await self._within(5.0, expected, effect)
        record = SignalRecord(number, sent, Clock.boot())
        self.signals.append(record)
        return record

    def _record(self, number: signal.Signals, seen: float | None) -> SignalRecord:
        if self.returncode is not None:
            raise self._exited(f"to be there for {number.name}")
        record = SignalRecord(number, Clock.boot(), seen)
        self._running.send_signal(number)
        self.signals.append(record)
        return record

    async def _within(self, timeout: float, expected: str, act: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(timeout):
                return await act()
        except TimeoutError:
            seen = [event.name for event in self.events[-8:]]
            raise NoEventError(
                name=self.name,
                expected=expected,
                timeout=timeout,
                state=self.state,
                seen=seen,
                tail=self.tail,
            ) from None

    def _exited(self, expected: str) -> ChildExitedError:
        self._exit_expected = True  # it is told here, no need to tell it again at the end of the block
        return ChildExitedError(name=self.name, code=self.returncode, expected=expected, tail=self.tail)

    async def _read_to_the_end(self, readers: list[asyncio.Task[None]]) -> None:
        # Bounded: a process that the child started, and that outlives it, may hold its stderr open.
        done, held_open = await asyncio.wait(readers, timeout=_LAST_WORDS)
        for reader in held_open:
            reader.cancel()
        for reader in done:
            if not reader.cancelled():
                reader.result()

    async def _read_events(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            fields: dict[str, Any] = json.loads(line)
            async with self._news:
                self.events.append(ChildEvent(fields.pop("event"), fields.pop("t_boot"), fields))
                self._news.notify_all()
        async with self._news:
            self._silent = True
            self._news.notify_all()

    async def _read_errors(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self._tail.append(line.decode(errors="replace").rstrip("\n"))


def process_state(pid: int) -> str:
    """Return the kernel's state letter of a process, or `gone`."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
    return stat.rpartition(")")[2].split()[0]  # the command's name, before it, may hold blanks and brackets
