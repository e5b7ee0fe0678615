"""One entity live in memory: loads it, takes its messages one after the other, and lets it go again.

One long-lived task. What it needs of its shard comes through `Surroundings`; how a turn runs is `turns.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import anyio

from redis_cluster_kit.delivery import (
    FROM_THE_START,
    NOTHING_OLDER,
    HeldFence,
    Mailboxes,
    MailboxParked,
    Message,
    Parking,
    Replies,
    SavedState,
    read_entry,
)
from redis_cluster_kit.entity import CallOptions, EntityDefinition, RpcCall
from redis_cluster_kit.errors import FencedError, PersistenceFailedError
from redis_cluster_kit.identity import EntityAddress, ShardId
from redis_cluster_kit.settings import MailboxSettings

from .commit import Committer, MessageGone
from .counters import RuntimeCounters
from .executions import Executions
from .in_hand import Leaving, LeftParked
from .turns import MustReload, TurnRunner

logger = logging.getLogger(__name__)

_FRESH_MS = 250
_SUSPECT_DEATHS = 2


class Surroundings(Protocol):
    """What an activation sees of its shard and its runner."""

    shard: ShardId
    fence: HeldFence
    runner_id: str
    mailboxes: Mailboxes
    parking: Parking
    executions: Executions
    committer: Committer
    replies: Replies
    counters: RuntimeCounters
    limits: MailboxSettings
    suspects: anyio.Lock
    cluster: Any
    ending: anyio.Event

    def resource(self, type: type[Any]) -> Any: ...
    def call(self, address: EntityAddress, rpc: str, options: CallOptions) -> RpcCall[Any, Any]: ...
    def check(self) -> None: ...
    def server_ms(self) -> int: ...
    def now(self) -> float: ...
    def idle(self, activation: EntityActivation) -> None: ...
    def busy(self, activation: EntityActivation) -> None: ...
    def sent(self) -> None: ...
    def made_room(self, member: str) -> None: ...
    def waited(self, message: Message) -> None: ...
    def loaded(self, activation: EntityActivation) -> None: ...
    async def wait_for_knowledge(self, *names: str, look: Callable[[], Awaitable[None]]) -> None: ...
    def counted_parked(self, due_ms: int) -> None: ...
    async def buried(self, address: EntityAddress) -> None: ...


class EntityActivation:
    """One entity, from its first message in memory to its passivation or hand-off."""

    def __init__(self, around: Surroundings, definition: EntityDefinition, address: EntityAddress) -> None:
        self.around = around
        self.definition = definition
        self.address = address
        self.member = f"{address.type}:{address.id}"
        self.idle_since = around.now()
        self.in_hand: dict[str, Message] = {}
        """What it has taken and not finished, by entry."""
        self._turns: TurnRunner | None = None
        self._ready: Message | None = None
        self._is_marked = False
        self._is_leaving = False
        self._is_rescued = False
        self._after = FROM_THE_START
        self._newest = (0, 0)
        self._parked: asyncio.Future[None] | None = None

    # What handlers see through their instance

    @property
    def cluster(self) -> Any:
        """The cluster."""
        return self.around.cluster

    def resource(self, type: type[Any], /) -> Any:
        """Return what `lifespan` provided."""
        return self.around.resource(type)

    def keep_alive(self) -> None:
        """Begin `max_idle` anew."""
        self.idle_since = self.around.now()
        if self._parked is not None:
            self.around.busy(self)
            self.around.idle(self)

    def call(self, rpc: str, options: CallOptions, /) -> RpcCall[Any, Any]:
        """Return the call of one of its own rpcs through its mailbox."""
        return self.around.call(self.address, rpc, options)

    # What its shard tells it

    @property
    def is_idle(self) -> bool:
        """Whether it waits for messages, and none is known to wait for it."""
        return self._parked is not None and self._ready is None and not self._is_marked

    @property
    def is_marked(self) -> bool:
        """Whether a nudge came that it has not looked after."""
        return self._is_marked

    def offer(self, fence: str, message: Message | None) -> None:
        """Take a nudge: use its message at once if it can be, else claim once more before going idle."""
        if message is not None and self._can_use(fence, message):
            self._ready = message
            self.around.counters.quick += 1
        else:
            self._is_marked = True
            self.around.counters.marked += 1
        self.wake()

    def rescue(self) -> None:
        """Let it look: the poll has seen something in its mailbox, and no nudge has come, yet at least."""
        self._is_rescued = True
        self.mark()

    def mark(self) -> None:
        """Let it look into its mailbox."""
        self._is_marked = True
        self.wake()

    def leave(self) -> None:
        """Ask it to go: it has been idle for long enough, or the shard is handed off."""
        self._is_leaving = True
        self.wake()

    def wake(self) -> None:
        """Let it go on if it waits."""
        parked, self._parked = self._parked, None
        if parked is not None and not parked.done():
            parked.set_result(None)

    def _can_use(self, fence: str, message: Message) -> bool:
        """Only what is surely next: fresh, under our fence, newer than all before, and nothing runs."""
        place = message.place
        return (
            self._parked is not None
            and self._turns is not None
            and not self._is_marked
            and not self._is_leaving
            and self._ready is None
            and not self.in_hand
            and self.definition.concurrency == 1
            and fence == self.around.fence.number
            and place > self._newest
            and self.around.server_ms() - place[0] < _FRESH_MS
        )

    # Its life

    async def run(self) -> bool:
        """Live; return whether it must be made anew at once, because something may wait for it."""
        try:
            await self._live()
        except (MustReload, MessageGone):
            return True
        except MailboxParked:
            return self._is_marked  # what wakes it brings it back; until then there is nothing to do
        except LeftParked:
            self.in_hand.clear()
            assert self._turns is not None
            await self._turns.stop()
            return self._is_marked
        except Leaving:
            if self._turns is not None:
                await self._turns.stop()
            return False
        except PersistenceFailedError as error:
            logger.warning("%s is loaded again: %s", self.address, error)
            if not self.around.ending.is_set():
                await anyio.sleep(0.1)
            return True
        return self._is_marked

    async def _live(self) -> None:
        try:
            message, saved = await self._claim(with_state=True)
        finally:
            self.around.loaded(self)
        if message is None or saved is None:
            return
        self._turns = TurnRunner(self, saved)
        self.around.counters.activated += 1
        await self._serve(message)
        await self._depart()

    async def _serve(self, message: Message | None) -> None:
        """Handle messages until it is time to leave."""
        while message is not None:
            self.in_hand[message.entry] = message
            following = await self.handle(message)
            self.in_hand.clear()
            if following is not None:
                self._note(following)
            message = following or await self.next()

    def handle(
        self, message: Message, *, claims: bool = True, alone: bool = True
    ) -> Awaitable[Message | None]:
        """Run one message to its end; return the next one, if its commit has claimed it."""
        assert self._turns is not None
        self.around.waited(message)
        if message.deaths < _SUSPECT_DEATHS:
            return self._turns.run(message, after=self._after if claims else None, alone=alone)
        return self._handle_suspect(message, claims=claims, alone=alone)

    async def _handle_suspect(self, message: Message, *, claims: bool, alone: bool) -> Message | None:
        """The same for a message with which runners have died: one at a time."""
        assert self._turns is not None
        async with self.around.suspects:
            again, _ = await self.around.mailboxes.claim(
                self.around.shard,
                self.around.fence,
                self.member,
                after=_before(message.entry),
                runs_suspects=True,
            )
            if again is None or again.id != message.id:
                raise MustReload
            return await self._turns.run(again, after=self._after if claims else None, alone=alone)

    async def next(self) -> Message | None:
        """Return the next message, waiting for one; None: it is time to leave."""
        while True:
            ready, self._ready = self._ready, None
            if ready is not None:
                self._note(ready)
                return ready
            if self.around.ending.is_set() or (self._is_leaving and not self._is_marked):
                return None
            if self._is_marked:
                self._is_marked = self._is_leaving = False
                message, _ = await self._claim()
                self._count_rescue(message)
                if message is not None:
                    return message
                continue
            await self._park()

    def _count_rescue(self, message: Message | None) -> None:
        """Count what the poll found only if its nudge should have come long before."""
        rescued, self._is_rescued = self._is_rescued, False
        if rescued and message is not None:
            age = self.around.server_ms() - message.place[0]
            self.around.counters.rescued += age > _FRESH_MS

    async def _park(self) -> None:
        self._parked = parked = asyncio.get_running_loop().create_future()
        self.idle_since = self.around.now()
        try:
            if not self.in_hand:
                self.around.idle(self)  # which may wake it at once: there are too many
            await parked
        finally:
            self._parked = None
            self.around.busy(self)

    async def _claim(self, *, with_state: bool = False) -> tuple[Message | None, SavedState | None]:
        """Take the next message. Pending beyond the newest is what a claim took whose reply was lost."""
        message, saved = await self.around.mailboxes.claim(
            self.around.shard,
            self.around.fence,
            self.member,
            after=self._after or _text(self._newest),
            with_state=with_state,
        )
        if message is None:
            self._after = NOTHING_OLDER
        else:
            self._note(message)
        return message, saved

    def _note(self, message: Message) -> None:
        """Remember how far it has read: what is pending comes before what is new."""
        if message.is_claimed and not message.is_old:
            self._after = NOTHING_OLDER
        elif message.is_old and self.definition.concurrency > 1:
            self._after = message.entry
        self._newest = max(self._newest, message.place)

    async def _depart(self) -> None:
        """Let it go: its `on_stop`, and its empty mailbox removed."""
        assert self._turns is not None
        await self._turns.stop()
        if not self.around.ending.is_set():
            self.around.counters.passivated += 1
        try:
            if not await self.around.mailboxes.passivate(self.around.shard, self.around.fence, self.member):
                self._is_marked = True
        except FencedError:
            if not self.around.ending.is_set():
                raise


def _text(place: tuple[int, int]) -> str:
    return f"{place[0]}-{place[1]}"


def _before(entry: str) -> str:
    """Return the place right before an entry: what is pending after it is the entry itself."""
    milliseconds, number = read_entry(entry)
    return f"{milliseconds}-{number - 1}" if number else f"{milliseconds - 1}-18446744073709551615"
