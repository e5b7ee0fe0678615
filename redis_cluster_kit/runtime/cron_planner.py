"""Plans the crons of one runner: a heap of next instants, one transaction for all that are due, messages.

A moment before an instant its row is written and its message scheduled, so that at the instant it only has to
be delivered. Where what becomes of it has to be looked up, it is planned when it has come.
Whoever owns the shard of a cron plans it. After any doubt (a shard gained, a write without an answer) it
starts from what the database says: the last instant, and the rows that are not done, whose messages go again.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.entity import CronDefinition
from redis_cluster_kit.errors import FencedError, PersistenceFailedError
from redis_cluster_kit.ownership import OwnedShard
from redis_cluster_kit.storage import DueInstant, Hold, RegisteredCron, SqlCrons

from .cron_counters import CronCounters
from .tick_messages import TickMessages, TickPlace, milliseconds, moment

logger = logging.getLogger(__name__)

AHEAD_MS = 30
"""So long before its instant a tick is planned: what that takes, and some more on a busy machine."""
_MOST_DUE = 500
_MOST_OF_ONE = 100
_LONGEST_WAIT = 5.0
"""The clock is looked at so often: it may have been set."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_MS = timedelta(milliseconds=1)
_FOR_EVER = 2**62


@dataclass(slots=True, eq=False)
class PlannedCron:
    """A cron that is planned here, and under which ownership."""

    definition: CronDefinition
    owned: OwnedShard
    lose: Callable[[BaseException], None]
    last: int = 0
    """The last instant that has a row, or passed without one."""
    next: int = 0
    waits: bool = False
    """It was paused a moment before an instant: what becomes of that is decided when it has come."""

    @property
    def name(self) -> str:
        """The cron's name."""
        return self.definition.name

    @property
    def hold(self) -> Hold:
        """What the register must say for a write to count."""
        return Hold(self.owned.shard, self.owned.fence, self.owned.nonce)

    def following(self, after: int) -> int:
        """Return the first instant after this one."""
        return milliseconds(self.definition.schedule.next(moment(after)))

    @property
    def ahead(self) -> int:
        """How long before its instant a tick is planned, in milliseconds."""
        definition = self.definition
        is_looked_up = definition.overlap == "skip" or definition.circuit_breaker is not None
        return 0 if self.waits or is_looked_up else AHEAD_MS

    def due(self, now: int) -> list[int]:
        """Return the instants to be planned now, and move on to the next.

        Those that have come, or else the one that comes in a moment.
        """
        found = self._come(now)
        if not found and self.next <= now + self.ahead:
            found = [self.next]
            self.last, self.next = self.next, self.following(self.next)
        return found

    def _come(self, now: int) -> list[int]:
        """Return those that have come, and move on.

        After a pause only the last is made up for, unless each was asked for; none that is too old.
        """
        oldest = now - self.definition.skip_if_older_than // _MS
        first = self.next if self.next >= oldest else self.following(oldest - 1)
        if self.definition.calculate_next_run_from_previous:
            found: list[int] = []
            while first <= now and len(found) < _MOST_OF_ONE:
                found.append(first)
                first = self.following(first)
        else:
            found, second = [first], self.following(first)
            if first > now:
                found, second = [], first
            elif second <= now:
                latest = self.definition.schedule.latest(moment(first), moment(now))
                found = [second if latest is None else milliseconds(latest)]
                second = self.following(found[0])
            first = second
        self.last, self.next = found[-1] if found else self.last, first
        return found


class CronPlanner:
    """Plans what this runner leads."""

    def __init__(
        self,
        store: SqlCrons,
        messages: TickMessages,
        clock: Clock,
        counters: dict[str, CronCounters],
        attempt: timedelta,
    ) -> None:
        self._store = store
        self._messages = messages
        self._clock = clock
        self._counters = counters
        self._attempt = attempt.total_seconds()
        self._planned: dict[str, PlannedCron] = {}
        self._heap: list[tuple[int, int, PlannedCron]] = []
        self._coming: list[PlannedCron] = []
        """Those whose last instant has to be read first; they wait for a lease that lasts."""
        self._news = asyncio.Event()
        self._planning = anyio.Lock()
        self._failing_since = 0.0
        self.trouble = ""
        """Why nothing can be planned; empty while all is well."""

    @property
    def planned(self) -> dict[str, PlannedCron]:
        """The crons that are planned here, by name."""
        return self._planned

    @property
    def failing_for(self) -> float:
        """Seconds for which nothing could be planned."""
        return Clock.boot() - self._failing_since if self.trouble else 0.0

    def gained(self, crons: Iterable[PlannedCron]) -> None:
        """Begin to plan these."""
        self._coming += crons
        self._news.set()

    def gone(self, owned: OwnedShard) -> None:
        """Plan nothing of this shard any more."""
        self._coming = [one for one in self._coming if one.owned is not owned]
        self._planned = {name: one for name, one in self._planned.items() if one.owned is not owned}

    def wake(self) -> None:
        """Look at the clock: a test has moved it."""
        self._news.set()

    async def run(self) -> None:
        """Plan for ever."""
        pause = _FIRST_PAUSE
        while True:
            self._news.clear()
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - one bad cron must not stop the others for good
                self._note(error)
                await anyio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(_LONGEST_PAUSE, pause * 2)
                continue
            self.trouble, pause = "", _FIRST_PAUSE
            await self._wait()

    async def look(self) -> None:
        """Plan all that is due now."""
        async with self._planning:
            try:
                while True:
                    if any(one.owned.is_held for one in self._coming):
                        await self._load()
                    elif self._is_due():
                        await self._plan()
                    else:
                        return
            except BaseException:
                # What was written is not known: the database says.
                self._coming = list(dict.fromkeys((*self._coming, *self._planned.values())))
                self._planned, self._heap = {}, []
                raise

    def _note(self, error: Exception) -> None:
        if not self.trouble:
            self._failing_since = Clock.boot()
            unexpected = not isinstance(error, PersistenceFailedError | TimeoutError)
            logger.warning("crons cannot be planned: %s", error, exc_info=error if unexpected else None)
        self.trouble = str(error) or f"no answer within {self._attempt:g} s"

    async def _wait(self) -> None:
        pause = self._heap[0][0] / 1000 - self._clock.now() if self._heap else _LONGEST_WAIT
        with anyio.move_on_after(min(_LONGEST_WAIT, max(0.0, pause))):
            await self._news.wait()

    def _push(self, one: PlannedCron) -> None:
        heapq.heappush(self._heap, (one.next - one.ahead, id(one), one))

    def _is_due(self) -> bool:
        while self._heap and self._planned.get(self._heap[0][2].name) is not self._heap[0][2]:
            heapq.heappop(self._heap)
        return bool(self._heap) and self._heap[0][0] <= self._clock.now_ms()

    # Starting

    async def _load(self) -> None:
        """Register what was gained, read where it stands, and send again what is not done."""
        coming = {one.name: one for one in self._coming if one.owned.is_held}
        now = self._clock.now_ms()
        with anyio.fail_after(2 * self._attempt):
            last = await self._store.register(
                {one.hold for one in coming.values()},
                [_registered(one) for one in coming.values()],
                now_ms=now,
                timeout=self._attempt,
            )
        await self._send_pending(last)
        for name, one in coming.items():
            if name not in last:
                _lost(one)
            elif one in self._coming:  # not gone meanwhile
                one.last = last[name]
                one.next = one.following(one.last)
                self._planned[name] = one
                self._push(one)
        loaded = set(coming.values())
        self._coming = [one for one in self._coming if one not in loaded]

    async def _send_pending(self, names: Iterable[str]) -> None:
        """Send what is not done, also for times to come: who planned it may be gone before it was sent."""
        after, listed = (0, ""), list(names)
        while True:
            found = await self._store.pending(
                listed, after, before_ms=_FOR_EVER, most=_MOST_DUE, timeout=self._attempt
            )
            groups = {one.name: one.definition.shard_group for one in self._coming}
            known = [(name, scheduled) for name, scheduled in found if name in groups]
            await self._send(
                [self._messages.place(name, groups[name], scheduled) for name, scheduled in known],
                again=True,
            )
            if len(found) < _MOST_DUE:
                return
            after = (found[-1][1], found[-1][0])

    # Planning

    async def _plan(self) -> None:
        """Give rows to what is due, and send it."""
        now = self._clock.now_ms()
        due: list[DueInstant] = []
        crons: dict[str, PlannedCron] = {}
        while self._is_due() and len(due) < _MOST_DUE:
            one = heapq.heappop(self._heap)[2]
            if not one.owned.is_held:  # its shard ends, or its lease is renewed at the last moment
                del self._planned[one.name]
                self._coming.append(one)
                continue
            crons[one.name] = one
            due += [self._due(one, scheduled) for scheduled in one.due(now)]
        if due:
            await self._write(crons, due, now)
        for one in crons.values():
            self._push(one)

    def _due(self, one: PlannedCron, scheduled: int) -> DueInstant:
        place = self._messages.place(one.name, one.definition.shard_group, scheduled)
        return DueInstant(one.name, scheduled, place.message_id, one.definition.overlap == "skip")

    async def _write(self, crons: dict[str, PlannedCron], due: list[DueInstant], now: int) -> None:
        holds = {name: one.hold for name, one in crons.items()}
        with anyio.fail_after(2 * self._attempt):
            planned = await self._store.plan(holds, due, now_ms=now, timeout=self._attempt)
        for one, reason in planned.skipped:
            self._counters[one.name].skipped[reason] += 1
            logger.info("cron %s: the instant %s is skipped: %s", one.name, moment(one.scheduled), reason)
        for one in planned.postponed:
            crons[one.name].waits, crons[one.name].next = True, one.scheduled
        for one in planned.pending:
            crons[one.name].waits = False
        places = [
            self._messages.place(one.name, crons[one.name].definition.shard_group, one.scheduled)
            for one in planned.pending
        ]
        await self._send(places)
        for cron in crons.values():
            if cron.owned.shard in planned.lost:
                _lost(cron)

    async def _send(self, places: list[TickPlace], *, again: bool = False) -> None:
        """Send messages, each for its instant; one that failed is sent again with everything not done."""
        now = self._clock.now_ms()
        dues = [place.scheduled if place.scheduled > now else None for place in places]
        sent = await asyncio.gather(
            *(
                self._messages.send(place, due=due, again=again)
                for place, due in zip(places, dues, strict=True)
            ),
            return_exceptions=True,
        )
        for outcome in sent:
            if isinstance(outcome, BaseException):
                raise outcome


def _registered(one: PlannedCron) -> RegisteredCron:
    definition = one.definition
    breaker = definition.circuit_breaker
    return RegisteredCron(
        name=one.name,
        shard=one.owned.shard,
        expression=definition.schedule.expression.text,
        timezone=definition.schedule.zone.key,
        overlap=definition.overlap,
        breaker_limit=0 if breaker is None else breaker.failures,
    )


def _lost(one: PlannedCron) -> None:
    """Tell the shard's host that the database names another owner."""
    error = FencedError(
        shard=str(one.owned.shard),
        fence=one.owned.fence,
        store="database",
        detail=f"cron {one.name} is another runner's",
    )
    one.lose(error)
