"""What a fault run leaves behind: who asked for what, what became of it and when.

One file per process, one line per fact, written at once, so that SIGKILL loses nothing. What a history
means is judged in `checkers`.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
from collections.abc import Callable, Generator, Hashable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, TypeVar

from redis_cluster_kit.clock import Clock

Phase: TypeAlias = Literal["invoke", "ok", "fail", "info"]
Row = TypeVar("Row")

_PHASES = ("invoke", "ok", "fail", "info")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a history. `fail` means it certainly did not happen, `info` that nobody knows."""

    t_boot: float
    pid: int
    process: str
    op: str
    id: str
    phase: Phase
    value: Any = None


@dataclass(frozen=True, slots=True)
class Operation:
    """What was asked for, and what became of it. An open end (`info`) may still take effect, for ever."""

    process: str
    op: str
    id: str
    invoked_at: float
    completed_at: float
    """Infinity when the outcome is not known."""
    phase: Phase
    """`ok`, `fail` or `info`."""
    argument: Any = None
    result: Any = None


@dataclass(frozen=True, slots=True)
class RegisterOperation:
    """A read, write or compare-and-set of one register.

    A read's `result` is the value read, a cas' whether it was done. Infinite `completed_at`: unknown.
    """

    key: str
    kind: Literal["read", "write", "cas"]
    invoked_at: float
    completed_at: float
    value: Hashable = None
    """What is written."""
    expected: Hashable = None
    """What a cas wants to find."""
    result: Hashable = None


class Recorder:
    """Appends to one process's history. Opens, and closes at the end of a `with` block."""

    def __init__(self, path: Path | str, *, process: str = "") -> None:
        self.path = Path(path)
        self.process = process or self.path.stem
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Each line is one write to the kernel, in append mode: nothing of it is ours to lose.
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._numbers = itertools.count(1)

    def record(self, op: str, id: str, phase: Phase, value: Any = None) -> None:
        """Write one line."""
        entry = Entry(Clock.boot(), os.getpid(), self.process, op, id, phase, value)
        data = (
            json.dumps({f.name: getattr(entry, f.name) for f in dataclasses.fields(entry)}).encode() + b"\n"
        )
        written = os.write(self._fd, data)
        if written != len(data):
            raise OSError(
                f"expected to write {len(data)} bytes to {self.path}, wrote {written}: is the disk full?"
            )

    def note(self, op: str, /, **fields: Any) -> None:
        """Write a fact that took no time: it happened, just now."""
        self.record(op, self._new_id(), "ok", fields)

    @contextmanager
    def operation(self, op: str, value: Any = None, *, id: str = "") -> Generator[Outcome]:
        """Record an operation around a block, which calls `ok` or `fail` on what it is given.

        A block that does neither, or raises, leaves the outcome open (`info`): an error is no proof that
        nothing happened.
        """
        outcome = Outcome(id or self._new_id())
        self.record(op, outcome.id, "invoke", value)
        try:
            yield outcome
        finally:
            self.record(op, outcome.id, outcome.phase, outcome.value)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _new_id(self) -> str:
        return f"{os.getpid()}-{next(self._numbers)}"


class Outcome:
    """What became of an operation, as far as its block knows."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.phase: Phase = "info"
        self.value: Any = None

    def ok(self, value: Any = None) -> None:
        """It happened, with this result."""
        self.phase, self.value = "ok", value

    def fail(self, value: Any = None) -> None:
        """It certainly did not happen."""
        self.phase, self.value = "fail", value


class History:
    """The entries of all processes, in the order of the boot clock."""

    def __init__(self, entries: Iterable[Entry], *, torn: int = 0) -> None:
        self.entries = sorted(entries, key=lambda entry: entry.t_boot)
        self.torn = torn
        """Last lines that a kill cut short: their fact is not known."""

    @classmethod
    def load(cls, *places: Path | str) -> History:
        """Merge files, and every `*.jsonl` of folders. A damaged line that is not a file's last raises."""
        entries: list[Entry] = []
        torn = 0
        for path in itertools.chain.from_iterable(_files(Path(place)) for place in places):
            *lines, last = path.read_bytes().split(b"\n")
            torn += bool(last)
            entries.extend(_entry(line, path, number) for number, line in enumerate(lines, 1))
        return cls(entries, torn=torn)

    def of(self, *ops: str, phase: Phase | None = None) -> list[Entry]:
        """Return the entries of these operations, in order."""
        return [e for e in self.entries if e.op in ops and phase in (None, e.phase)]

    def operations(self, *ops: str) -> list[Operation]:
        """Pair beginnings with ends. No end means `info`; an end alone is a fact that took no time."""
        begun: dict[tuple[str, int, str, str], Entry] = {}
        done: list[Operation] = []
        for entry in self.of(*ops):
            key = (entry.process, entry.pid, entry.op, entry.id)
            if entry.phase == "invoke":
                if key in begun:
                    raise ValueError(f"expected one beginning of {key}, got two: ids must not repeat")
                begun[key] = entry
            else:
                done.append(_operation(begun.pop(key, entry), entry))
        done += [_operation(entry, None) for entry in begun.values()]
        return sorted(done, key=lambda operation: operation.invoked_at)

    def rows(self, op: str, row: Callable[..., Row]) -> list[Row]:
        """Turn every successful operation into a checker's row (a dataclass), in order of completion.

        Its fields come from the values recorded (objects: the result's over the argument's), and from the
        operation: `at` and `completed_at`, `invoked_at`, `process`.
        """
        wanted = {field.name for field in dataclasses.fields(row)}  # type: ignore[arg-type]
        done = [operation for operation in self.operations(op) if operation.phase == "ok"]
        return [row(**_fields(o, wanted)) for o in sorted(done, key=lambda o: o.completed_at)]

    def register_operations(self) -> list[RegisterOperation]:
        """Take out `read`, `write` and `cas`: their argument is `{key, value, expected}`, their result bare.

        What certainly failed is left out.
        """
        return [
            RegisterOperation(
                **operation.argument,
                kind=operation.op,  # type: ignore[arg-type]
                invoked_at=operation.invoked_at,
                completed_at=operation.completed_at,
                result=operation.result,
            )
            for operation in self.operations("read", "write", "cas")
            if operation.phase != "fail"
        ]


def _files(place: Path) -> list[Path]:
    return sorted(place.glob("*.jsonl")) if place.is_dir() else [place]


def _entry(line: bytes, path: Path, number: int) -> Entry:
    try:
        entry = Entry(**json.loads(line))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"expected a history entry in {path.name}, line {number}, got {line[:80]!r}"
        ) from error
    if entry.phase not in _PHASES:
        raise ValueError(f"expected a phase of {_PHASES} in {path.name}, line {number}, got {entry.phase!r}")
    return entry


def _operation(begin: Entry, end: Entry | None) -> Operation:
    open_end = end is None or end.phase == "info"
    return Operation(
        process=begin.process,
        op=begin.op,
        id=begin.id,
        invoked_at=begin.t_boot,
        completed_at=math.inf if open_end or end is None else end.t_boot,
        phase="info" if end is None else end.phase,
        argument=begin.value if begin.phase == "invoke" else None,
        result=None if end is None else end.value,
    )


def _fields(operation: Operation, wanted: set[str]) -> dict[str, Any]:
    known: dict[str, Any] = {
        "process": operation.process,
        "at": operation.completed_at,
        "invoked_at": operation.invoked_at,
        "completed_at": operation.completed_at,
    }
    for value in (operation.argument, operation.result):
        if isinstance(value, dict):
            known.update(value)  # pyright: ignore[reportUnknownArgumentType]
    return {name: known[name] for name in wanted if name in known}
