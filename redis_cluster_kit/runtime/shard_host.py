"""One owned shard being served: activations, poll, relay, timers and leaders, all in the shard's scope.

Nudges make it quick; the poll finds whatever they missed. It ends when the shard is handed off or lost.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup

from redis_cluster_kit.delivery import HeldFence, Message, Relay
from redis_cluster_kit.entity import CallOptions, RpcCall
from redis_cluster_kit.errors import FencedError, KitError, PersistenceFailedError
from redis_cluster_kit.identity import EntityAddress
from redis_cluster_kit.ownership import OwnedShard

from .activation import EntityActivation
from .commit import Committer
from .overlapping import OverlappingActivation
from .timers import Timers
from .unknown import UnknownTypes

if TYPE_CHECKING:
    from .host import EntityHost

logger = logging.getLogger(__name__)

POLL_EVERY = 0.5


class ShardHost:
    """Serves one shard; made by the runner's host when the shard is gained."""

    def __init__(self, host: EntityHost, owned: OwnedShard) -> None:
        self.host = host
        self.owned = owned
        self.shard = owned.shard
        self.fence = HeldFence(str(owned.fence), owned.nonce)
        self.runner_id = host.runner_id
        self.mailboxes = host.mailboxes
        self.scheduled = host.scheduled
        self.committer = Committer(host.mailboxes, host.commits, owned.shard, self.fence)
        self.parking = host.executions.parking
        self.executions = host.executions
        self.replies = host.replies
        self.counters = host.counters
        self.limits = host.limits
        self.suspects = host.suspects
        self.cluster = host.cluster
        self.ending = owned.ending
        self.activations: dict[str, EntityActivation] = {}
        self.unknown = UnknownTypes(self)
        self._relay = Relay(host.mailboxes, owned.shard, self.fence, self._not_after)
        self.timers = Timers(self)
        self._cursor = "0"
        self._saw_waiting = False
        self._emptied = anyio.Event()
        self._tasks: TaskGroup | None = None

    # Its life

    async def run(self) -> None:
        """Serve until the shard is to be handed off; return when nothing is in hand any more."""
        leaders = self.host.singletons.begin(self.owned, self._lose)
        crons = self.host.crons
        if crons is not None:
            crons.begin(self.owned, self._lose)
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                for part in (self._poll_on, self._relay.run, self.timers.run, *(one.run for one in leaders)):
                    tasks.start_soon(self._guarded, part)
                await self.ending.wait()
                for activation in list(self.activations.values()):
                    activation.leave()
                while self.activations:
                    self._emptied = anyio.Event()
                    await self._emptied.wait()
                for leader in leaders:
                    await leader.ended.wait()
                tasks.cancel_scope.cancel()
        finally:
            self.host.singletons.end(leaders)
            if crons is not None:
                crons.end(self.owned)

    async def _guarded(self, part: Callable[[], Awaitable[object]]) -> None:
        """Run a part; when it meets another owner the shard is lost, and anything else it raises too."""
        try:
            await part()
        except* FencedError as errors:
            self._lose(errors.exceptions[0])
        except* Exception as errors:
            logger.exception("serving shard %s failed", self.shard)
            self.owned.lose(f"serving it failed: {errors.exceptions[0]!r}")

    def _lose(self, error: BaseException) -> None:
        self.counters.fenced += 1
        self.owned.lose(f"a write was refused: {error}")

    # Activations

    def on_mail(self, member: str, fence: str, message: Message | None) -> None:
        """Take a nudge: something came into this entity's mailbox."""
        activation = self.activations.get(member)
        if activation is None:
            self.activate(member)
        else:
            activation.offer(fence, message)

    def activate(self, member: str) -> None:
        """Bring an entity into memory, or let it look into its mailbox if it is there."""
        activation = self.activations.get(member)
        if activation is not None:
            activation.mark()
            return
        if self.ending.is_set() or self._tasks is None:
            return
        type, _, id = member.partition(":")
        definition = self.host.definitions.get(type)
        if definition is None:
            self.unknown.saw(type, member)
            return
        self.unknown.wants(type)
        if not self.host.doorway.enter(self, member):
            return
        kind = EntityActivation if definition.concurrency == 1 else OverlappingActivation
        activation = kind(self, definition, EntityAddress(type, id, self.shard))
        self.activations[member] = activation
        self.host.arrived(activation)
        self._tasks.start_soon(self._live, activation)

    async def _live(self, activation: EntityActivation) -> None:
        is_wanted = False
        try:
            is_wanted = await activation.run()
        except FencedError as error:
            self._lose(error)
        except Exception as error:
            logger.exception("the activation of %s failed", activation.address)
            self.owned.lose(f"an activation failed: {error!r}")
        finally:
            del self.activations[activation.member]
            self.host.gone(activation)
            await self._give_back(activation, is_wanted=is_wanted)
            self._emptied.set()
        if is_wanted and not self.ending.is_set():
            self.activate(activation.member)

    async def _give_back(self, activation: EntityActivation, *, is_wanted: bool) -> None:
        """Let what it has in hand wait again, so that ending in the middle is counted as no death."""
        goes_on = is_wanted and not self.ending.is_set()
        if not activation.in_hand or goes_on or not self.owned.is_held:
            return
        taken = [(activation.member, message.id) for message in activation.in_hand.values()]
        with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
            try:
                await self.mailboxes.release(self.shard, self.fence, taken)
            except KitError as error:
                logger.warning("messages of %s were not given back: %s", activation.address, error)

    # What activations see

    def resource(self, type: type[Any]) -> Any:
        """Return what `lifespan` provided."""
        return self.host.resource(type)

    def call(self, address: EntityAddress, rpc: str, options: CallOptions) -> RpcCall[Any, Any]:
        """Return the call of an entity's own rpc."""
        return self.host.call(address, rpc, options)

    def check(self) -> None:
        """Raise `FencedError` if the lease has ended here already."""
        self.owned.check()

    def server_ms(self) -> int:
        """The data Redis' own time."""
        return self.host.clock.server_ms()

    def now(self) -> float:
        """The time that idleness is counted in."""
        return self.host.clock.now()

    def idle(self, activation: EntityActivation) -> None:
        """Count it among those that may be passivated."""
        self.host.residents.idle(activation)

    def busy(self, activation: EntityActivation) -> None:
        """Count it among those at work."""
        self.host.residents.busy(activation)

    def made_room(self, member: str) -> None:
        """A message has left an entity's mailbox."""
        self.timers.made_room(member)

    def sent(self) -> None:
        """A commit has put something into the outbox."""
        self._relay.wake()

    def loaded(self, activation: EntityActivation) -> None:
        """It has read its first message and its state, or could not."""
        self.host.doorway.leave(self, activation.member)

    def counted_parked(self, due_ms: int) -> None:
        """A turn was parked: it is to be woken at this time of the clock at the latest."""
        self.executions.counters.parks += 1
        self.timers.heard(due_ms)

    def waited(self, message: Message) -> None:
        """A message begins to be handled."""
        self.counters.waited(max(0.0, (self.host.clock.server_ms() - message.place[0]) / 1000))

    async def wait_for_knowledge(self, *names: str, look: Callable[[], Awaitable[None]]) -> None:
        """Wait until nobody alive has known these for ten minutes; a hand-off usually comes first."""
        await self.unknown.wait(*names, look=look)

    async def buried(self, address: EntityAddress) -> None:
        """A message has become a dead letter."""
        if self.host.crons is not None:
            await self.host.crons.buried(address)

    def _not_after(self) -> int:
        """Server milliseconds at which our lease has ended."""
        left = self.owned.deadline - self.host.clock.boot()
        return self.host.clock.server_ms() + round(left * 1000)

    # Polling

    async def poll(self) -> None:
        """Look once at everything that may have been missed."""
        cursor = "0"
        while True:
            cursor = await self._poll_step(cursor)
            if cursor == "0":
                break
        await self.timers.look()
        self._relay.wake()

    async def _poll_on(self) -> None:
        await self._survey()
        while True:
            await anyio.sleep(POLL_EVERY)
            try:
                self._cursor = await self._poll_step(self._cursor)
                if self._cursor == "0":
                    self.unknown.scanned()
                await self.unknown.note()
                self.timers.wake()
                self._relay.wake()
            except PersistenceFailedError as error:
                logger.warning("the poll of shard %s failed: %s", self.shard, error)

    async def _survey(self) -> None:
        """After taking the shard: everything that waits."""
        with contextlib.suppress(PersistenceFailedError):  # only for speed, and a full server refuses it
            await self.mailboxes.prepare(self.shard)
        while True:
            try:
                await self.poll()
            except PersistenceFailedError:
                await anyio.sleep(0.1)
            else:
                return

    async def _poll_step(self, cursor: str) -> str:
        following, members = await self.mailboxes.scan_active(self.shard, cursor)
        self._note_waiting(members, is_first=cursor == "0", is_last=following == "0")
        for member in members:
            activation = self.activations.get(member)
            if activation is None:
                self.activate(member)
            elif activation.is_idle:
                activation.rescue()
        return following

    def _note_waiting(self, members: list[str], *, is_first: bool, is_last: bool) -> None:
        """Tell whether something waits in this shard that is in nobody's hands; a whole scan decides."""
        seen = any(self._is_unattended(member) for member in members)
        self._saw_waiting = seen or (self._saw_waiting and not is_first)
        if self._saw_waiting or is_last:
            self.host.progress.saw(str(self.shard), is_waiting=self._saw_waiting)

    def _is_unattended(self, member: str) -> bool:
        activation = self.activations.get(member)
        if activation is None:
            return member.partition(":")[0] in self.host.definitions
        return not activation.in_hand
