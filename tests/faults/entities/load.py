"""Senders that number what they send and record what they were told; and the judge of what came of it."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

import anyio
from anyio.abc import TaskGroup

from redis_cluster_kit import MailboxFullError, PersistenceFailedError, SendTimeoutError, UnknownError
from redis_cluster_kit.errors import Execution
from redis_cluster_kit.testing import History, Recorder, Verdict, together
from redis_cluster_kit.testing.checkers import (
    Effect,
    MailboxCount,
    Sent,
    bound,
    duplicates,
    exactly_once,
    send_order,
)

from .fleet import GUARD, Fleet
from .pod import CAPACITY, Keeper

Outcome = Literal["accepted", "rejected", "unknown"]
_OUTCOMES: dict[str, Outcome] = {"ok": "accepted", "fail": "rejected", "info": "unknown"}
_NUMBERS = itertools.count(1)


@dataclass
class Load:
    """Keeps senders at work on entities while its block runs; `senders` beyond the first ask."""

    fleet: Fleet
    ids: tuple[str, ...]
    senders: int = 2
    pause: float = 0.01
    call: Callable[[Any, str], Any] | None = None
    """How a message is sent, instead of `add.send` and `add`."""
    errors: Counter[str] = field(default_factory=Counter[str])
    lengths: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    async def __aenter__(self) -> Load:
        self._cluster = await self.fleet.sender()
        self._recorder = Recorder(self.fleet.folder / f"load-{next(_NUMBERS)}.jsonl")
        self._stopping = anyio.Event()
        self._tasks: TaskGroup = anyio.create_task_group()
        await self._tasks.__aenter__()
        for id in self.ids:
            self._tasks.start_soon(self._measure, id)
            for number in range(self.senders):
                self._tasks.start_soon(self._line, f"{self._recorder.process}.{number}", id, bool(number % 2))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        try:
            await self._tasks.__aexit__(kind, error, trace)
        finally:
            self._recorder.close()

    async def acknowledged(self, more: int) -> None:
        """Wait until so many more messages were accepted: whatever went wrong, it goes on."""
        wanted = self._accepted + more
        with anyio.fail_after(GUARD):
            while self._accepted < wanted:
                await anyio.sleep(0.01)

    _accepted = 0

    async def _line(self, sender: str, id: str, asks: bool) -> None:
        """One sender to one entity: its messages go out one after the other."""
        keeper = self._cluster.entity(Keeper, id)
        for number in itertools.count(1):
            if self._stopping.is_set():
                return
            mark = f"{sender}/{number}"
            sent = {"message": mark, "sender": sender, "entity": id, "number": number}
            with self._recorder.operation("send", sent) as outcome:
                try:
                    if self.call is not None:
                        await self.call(keeper, mark)
                    elif asks:
                        await keeper.add.options(timeout=15.0)(mark)
                    else:
                        await keeper.add.send(mark)
                except (MailboxFullError, PersistenceFailedError) as error:
                    self.errors[type(error).__name__] += 1
                    if not isinstance(error, PersistenceFailedError) or error.execution in (
                        Execution.NOT_EXECUTED,
                        Execution.REFUSED,
                    ):
                        outcome.fail(type(error).__name__)
                except (UnknownError, SendTimeoutError) as error:
                    self.errors[type(error).__name__] += 1
                else:
                    self._accepted += 1
                    outcome.ok()
            await anyio.sleep(self.pause)

    async def _measure(self, id: str) -> None:
        """How long the mailbox gets."""
        while not self._stopping.is_set():
            try:
                self.lengths[id].append(await self.fleet.depth(id))
            except PersistenceFailedError:
                self.errors["unmeasured"] += 1
            await anyio.sleep(0.02)

    async def judge(self, *others: Load) -> Verdict:
        """What the store says of all that was sent here, and by others to the same entities.

        To be called when everything is drained.
        """
        sent = sent_of(History.load(*(load._recorder.path for load in (self, *others))))
        lists = {id: await self.fleet.applied(id) for id in self.ids}
        return together(
            judge(sent, lists),
            bound(_count(id, self.lengths[id], [one for one in sent if one.entity == id]) for id in self.ids),
        )


def sent_of(history: History) -> list[Sent]:
    """What was sent, as its senders know it."""
    return [
        Sent(**operation.argument, outcome=_OUTCOMES[operation.phase])
        for operation in history.operations("send")
    ]


def judge(sent: Iterable[Sent], lists: dict[str, list[str]]) -> Verdict:
    """Every accepted message has one effect, in the order of its sender."""
    known = list(sent)
    effects = [Effect(mark, id) for id, marks in lists.items() for mark in marks]
    certain = [one for one in known if one.outcome == "accepted"]
    return together(exactly_once(known, effects), _renamed(send_order(certain, effects)), duplicates(lists))


def _renamed(verdict: Verdict) -> Verdict:
    examined = {"ordered_pairs": verdict.examined["ordered_pairs"]}
    return Verdict(verdict.violations, examined)


def _count(id: str, lengths: list[int], sent: list[Sent]) -> MailboxCount:
    told = Counter(one.outcome for one in sent)
    return MailboxCount(id, CAPACITY, lengths, len(sent), told["accepted"], told["rejected"], told["unknown"])
