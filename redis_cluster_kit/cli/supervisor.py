"""Keeps the processes of `rck run`: starts them, passes signals on, tells crashes and starts again.

It knows nothing of clusters and holds no connection: each process is a runner of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from redis_cluster_kit.clock import Clock

from .commands import CANNOT
from .hosted import POINTLESS

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
CALM = 60.0
"""A process that served so long starts again without a longer pause."""
_LAST_WORDS = 1.0

Tell = Callable[[str, dict[str, Any]], None]


@dataclass(slots=True)
class Place:
    """One of the N processes: who is there now, and how often it has crashed in a row."""

    number: int
    process: asyncio.subprocess.Process | None = None
    runner: str = ""
    joined_at: float | None = None
    crashes: int = 0
    why: str = ""

    def pause(self) -> float:
        """Count a crash and return the seconds until the next start."""
        calm = self.joined_at is not None and Clock.boot() - self.joined_at > CALM
        self.crashes = 1 if calm else self.crashes + 1
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (self.crashes - 1))


@dataclass(slots=True)
class Supervisor:
    """`run()` returns the exit code when every process has ended. `tell` gets (event, facts)."""

    target: str
    processes: int
    tell: Tell
    changes: AsyncIterator[str] | None = None
    """Names of files that changed; each starts every process anew."""
    places: list[Place] = field(default_factory=list[Place])
    _signals: list[int] = field(default_factory=list[int])
    _stop: anyio.Event = field(default_factory=anyio.Event)
    _changed: anyio.Event = field(default_factory=anyio.Event)
    _code: int = 0

    async def run(self) -> int:
        """Start all and stay until they have ended."""
        self.places = [Place(number) for number in range(1, self.processes + 1)]
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with anyio.create_task_group() as watching:
                watching.start_soon(self._pass_on, signals)
                if self.changes is not None:
                    watching.start_soon(self._watch, self.changes)
                async with anyio.create_task_group() as keeping:
                    for place in self.places:
                        keeping.start_soon(self._keep, place)
                watching.cancel_scope.cancel()
        return 128 + self._signals[-1] if len(self._signals) > 1 else self._code

    async def _keep(self, place: Place) -> None:
        while not self._stop.is_set():
            changed = self._changed
            code = await self._run_once(place)
            if self._stop.is_set():
                self._code = self._code or int(code != 0)
                return
            if changed.is_set():
                continue
            if code == 0:
                self._say("ended", place, text="has ended by itself and is not started again")
                return
            if not await self._after_crash(place, code, changed):
                return

    async def _after_crash(self, place: Place, code: int, changed: anyio.Event) -> bool:
        """Tell it and wait; return whether to start again."""
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        why = f": {place.why}" if place.why else ""
        if code == POINTLESS and self.changes is None:
            self._say("refused", place, text=f"cannot serve{why}", code=code)
            self._code = CANNOT
            self._end_all(signal.SIGTERM)
            return False
        pause = None if code == POINTLESS else place.pause()
        next_start = "when a file changes" if pause is None else f"in {pause:g} s"
        self._say("crashed", place, text=f"{how}{why}; starts again {next_start}", code=code, pause=pause)
        with anyio.move_on_after(pause):
            async with anyio.create_task_group() as either:
                for event in (self._stop, changed):
                    either.start_soon(_then_cancel, event, either.cancel_scope)
        return True

    async def _run_once(self, place: Place) -> int:
        """Start a process and return its exit code."""
        reading, writing = os.pipe()
        place.runner, place.joined_at, place.why = "", None, ""
        try:
            # A group of its own keeps the terminal's Ctrl-C away: it comes through us, once.
            process = place.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", f"{__package__}.hosted", self.target, str(writing), str(os.getpid())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(writing,),
                process_group=0,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._say("started", place, text="starts")
        if self._stop.is_set():
            process.send_signal(signal.SIGTERM)
        code = 0
        try:
            async with anyio.create_task_group() as listening:
                heard = anyio.Event()
                listening.start_soon(self._listen, place, reading, heard)
                code = await process.wait()
                # Bounded: what it has forked and left behind may hold the pipe open.
                with anyio.move_on_after(_LAST_WORDS):
                    await heard.wait()
                listening.cancel_scope.cancel()
            return code
        finally:
            place.process = None

    async def _listen(self, place: Place, descriptor: int, heard: anyio.Event) -> None:
        """Take what the process tells until it is gone."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
        )
        try:
            while line := await reader.readline():
                fields = json.loads(line)
                if fields["event"] == "joined":
                    place.joined_at, place.runner = Clock.boot(), fields["runner"]
                    self._say("joined", place, text=f"joined as {place.runner}")
                else:
                    place.why = fields["why"]
            heard.set()
        finally:
            transport.close()

    async def _pass_on(self, signals: AsyncIterator[signal.Signals]) -> None:
        async for number in signals:
            self._signals.append(number)
            again = " again: processes end at once" if len(self._signals) > 1 else ": shards are given away"
            self.tell("signal", {"signal": number.name, "text": f"{number.name}{again}"})
            self._end_all(number)

    async def _watch(self, changes: AsyncIterator[str]) -> None:
        async for name in changes:
            self.tell("changed", {"file": name, "text": f"{name} has changed: every process starts anew"})
            before, self._changed = self._changed, anyio.Event()
            before.set()
            self._signal_all(signal.SIGTERM)

    def _end_all(self, number: int) -> None:
        self._stop.set()
        self._signal_all(number)

    def _signal_all(self, number: int) -> None:
        for place in self.places:
            if place.process is not None and place.process.returncode is None:
                place.process.send_signal(number)

    def _say(self, event: str, place: Place, *, text: str, **facts: Any) -> None:
        pid = None if place.process is None else place.process.pid
        told = {"process": place.number, "pid": pid, "runner": place.runner, **facts}
        shown = f"process {place.number}" + ("" if pid is None else f" (pid {pid})")
        self.tell(event, {**told, "text": f"{shown} {text}"})


async def _then_cancel(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
