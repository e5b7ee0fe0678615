"""The bank's customers: they ask for transfers between random accounts, and remember what they were told.

They are no pod: their process only sends, and outlives all pods. A transfer whose answer does not come is
asked for again under the same idempotency key, and so is every tenth one that was answered, on purpose.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.cluster import Cluster
from redis_cluster_kit.errors import (
    MailboxFullError,
    PersistenceFailedError,
    RunnerUnavailableError,
    SendTimeoutError,
    UnknownError,
)

from .bank import ACCOUNTS, Account, Book, Declined
from .books import Transfer

_STEP = 0.02
_MOST_UNDERWAY = 1_500
_MOST = 60
_ANSWER_WITHIN = 15.0
_PATIENCE = 15.0
_REPEAT_EVERY = 10
_AGAIN_AFTER = 0.2
_COME_AGAIN = (
    MailboxFullError,
    PersistenceFailedError,
    RunnerUnavailableError,
    SendTimeoutError,
    UnknownError,
)


@dataclass
class Customers:
    """`open` lets them in, `come` is what they do, `close` lets no more in and waits for the last to go."""

    cluster: Cluster
    rate: float
    """Transfers a second; fewer while too many wait for their answers."""
    transfers: list[Transfer] = field(default_factory=list[Transfer])
    different: list[str] = field(default_factory=list[str])
    """Transfers that were answered in two ways: there must be none."""
    underway: int = 0
    acknowledged: int = 0
    seconds: list[float] = field(default_factory=list[float])
    """How long each acknowledged transfer took, from asking to the answer."""
    _random: random.Random = field(default_factory=random.Random)
    _recent: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=100))
    _opening: anyio.Event = field(default_factory=anyio.Event)
    _closing: anyio.Event = field(default_factory=anyio.Event)
    _gone: anyio.Event = field(default_factory=anyio.Event)
    _until: float = float("inf")

    @property
    def is_open(self) -> bool:
        """Whether somebody may come."""
        return self._opening.is_set() and not self._closing.is_set()

    @property
    def rate_now(self) -> float:
        """Transfers acknowledged a second, during the last two."""
        if len(self._recent) < 2 or not self.is_open:
            return 0.0
        (began, before), (ended, after) = self._recent[0], self._recent[-1]
        return (after - before) / max(ended - began, _STEP)

    def open(self) -> None:
        """Let customers in from now on."""
        self._opening.set()

    async def come(self) -> None:
        """Let customers in while the bank is open; return when the last has gone."""
        await self._opening.wait()
        began = Clock.boot()
        async with anyio.create_task_group() as tasks:
            while not self._closing.is_set():
                self._let_in(tasks, began)
                self._recent.append((Clock.boot(), self.acknowledged))
                await anyio.sleep(_STEP)
        self._gone.set()

    def _let_in(self, tasks: TaskGroup, began: float) -> None:
        owed = int((Clock.boot() - began) * self.rate) + 1 - len(self.transfers)
        for _ in range(min(owed, _MOST, _MOST_UNDERWAY - self.underway)):
            source, target = self._random.sample(ACCOUNTS, 2)
            transfer = Transfer(len(self.transfers), source, target, self._random.randint(1, 90))
            self.transfers.append(transfer)
            tasks.start_soon(self._ask, transfer)

    async def close(self) -> None:
        """Let nobody in any more, and wait for the answers that are still to come."""
        self._until = Clock.boot() + _PATIENCE
        self._closing.set()
        await self._gone.wait()

    async def _ask(self, transfer: Transfer) -> None:
        self.underway += 1
        began = Clock.boot()
        try:
            answer = await self._answer(transfer)
            if answer is None:
                transfer.outcome = "unknown"
                return
            self.seconds.append(Clock.boot() - began)
            transfer.outcome = "declined" if isinstance(answer, Declined) else "acknowledged"
            self.acknowledged += transfer.outcome == "acknowledged"
            if transfer.number % _REPEAT_EVERY == 0:
                await self._ask_again(transfer, answer)
        finally:
            self.underway -= 1

    async def _ask_again(self, transfer: Transfer, answer: int | Declined) -> None:
        """Ask for what was answered already: the first answer has to come again, and nothing happen."""
        again = await self._answer(transfer)
        if again is not None and _plain(again) != _plain(answer):
            self.different.append(f"transfer {transfer.number}: {answer!r}, then {again!r}")

    async def _answer(self, transfer: Transfer) -> int | Declined | None:
        """Ask until there is an answer; None if none comes in time."""
        account = self.cluster.entity(Account, transfer.source)
        call = account.transfer.options(idempotency_key=f"transfer-{transfer.number}", timeout=_ANSWER_WITHIN)
        while Clock.boot() < self._until:
            transfer.asks += 1
            try:
                return await call(transfer.number, transfer.target, transfer.amount)
            except Declined as declined:
                return declined
            except _COME_AGAIN:
                await anyio.sleep(_AGAIN_AFTER * (0.5 + self._random.random()))
        return None

    async def read_books(self) -> dict[str, Book]:
        """Return every book, as it stands now."""
        books: dict[str, Book] = {}

        async def read(name: str) -> None:
            books[name] = await self.cluster.entity(Account, name).book()

        async with anyio.create_task_group() as tasks:
            for name in ACCOUNTS:
                tasks.start_soon(read, name)
        return books


def _plain(answer: int | Declined) -> tuple[str, int]:
    return ("declined", answer.missing) if isinstance(answer, Declined) else ("balance", answer)
