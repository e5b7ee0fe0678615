"""Where pods die: checkpoints before every line of a program and around what it asks of a store.

What a pod's steps did outside goes into a file, one line each, and so does its death.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import anyio

from redis_cluster_kit import (
    DurableSettings,
    LeaseSettings,
    Settings,
    ShardSettings,
    ShortLeaseWarning,
)


class Stage:
    """This pod's checkpoints: which it has passed, and at which it is to die."""

    def __init__(self) -> None:
        self.folder = Path()
        self.die_at: str | None = None
        self.passed: list[str] = []
        self._counts: Counter[str] = Counter()

    def begin(self, given: dict[str, Any]) -> Settings:
        """Take what the test says; return settings for the pod's cluster."""
        self.folder, self.die_at = Path(given["folder"]), given["die_at"]
        warnings.simplefilter("ignore", ShortLeaseWarning)
        return Settings(
            lease=LeaseSettings(ttl=timedelta(seconds=2)),
            shards=ShardSettings(per_group=2, partitions=1),
            durable=DurableSettings(wake_poll=timedelta(milliseconds=300)),
        )

    def checkpoint(self, label: str) -> None:
        """Die here, if the test said so."""
        self._counts[label] += 1
        mark = f"{label} #{self._counts[label]}"
        self.passed.append(mark)
        if mark == self.die_at:
            self.note(f"died {mark}")
            os.kill(os.getpid(), signal.SIGKILL)

    def note(self, line: str) -> None:
        """Write down what happened outside of the cluster."""
        with (self.folder / "log").open("a") as log:
            log.write(line + "\n")

    def effect(self, step: str) -> None:
        """Do what a step does."""
        self.checkpoint(f"{step} begins")
        self.note(f"ran {step}")
        self.checkpoint(f"{step} ends")

    async def forgotten(self) -> None:
        """Wait until journals are deleted: that goes on behind turns, and not here if their pod has died."""
        with anyio.move_on_after(2):
            while "after Journal.forget #1" not in self.passed:
                await anyio.sleep(0.01)

    @property
    def log(self) -> list[str]:
        """What was noted so far, by this pod and those before it."""
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []


STAGE = Stage()


def each_line(file: str | None) -> None:
    """Make a checkpoint of each line of a file, whenever it is about to run."""
    assert file is not None

    def line(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            STAGE.checkpoint(f"{frame.f_code.co_name}, line {frame.f_lineno}")
        return line

    def call(frame: FrameType, _: str, __: object) -> Any:
        return line if frame.f_code.co_filename == file else None

    sys.settrace(call)


def around(owner: type[Any], *names: str) -> None:
    """Make checkpoints before and after calls of a store."""
    for name in names:
        setattr(owner, name, _watched(getattr(owner, name)))


def _watched(real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    label = real.__qualname__

    @functools.wraps(real)
    async def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        what = f"{label} {args[1].name}" if label == "Journal.record" else label
        STAGE.checkpoint(f"before {what}")
        found = await real(self, *args, **kwargs)
        STAGE.checkpoint(f"after {what}")
        return found

    return watched
