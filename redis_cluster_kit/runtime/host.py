"""The entities of one runner: hosts its shards, hands nudges to them, passivates who is idle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import anyio

from redis_cluster_kit.calling import Caller, Target, rpc_call
from redis_cluster_kit.clock import Clock
from redis_cluster_kit.delivery import Mailboxes, Message, Replies, Scheduled, read_entry
from redis_cluster_kit.entity import CallOptions, EntityDefinition, RpcCall
from redis_cluster_kit.errors import PersistenceFailedError
from redis_cluster_kit.identity import EntityAddress, ShardId
from redis_cluster_kit.ownership import OwnedShard
from redis_cluster_kit.redis_access import Batches
from redis_cluster_kit.settings import Settings

from .activation import EntityActivation
from .commit import COMMIT
from .counters import RuntimeCounters
from .crons import CronHost
from .doorway import Doorway
from .executions import Executions
from .progress import Progress
from .residents import Residents
from .shard_host import ShardHost
from .singletons import SingletonHost

logger = logging.getLogger(__name__)

_SWEEP_EVERY = 0.25
_MEASURE_EVERY = 5.0

NoteWants = Callable[[ShardId, int, Mapping[str, int]], Awaitable[None]]
SomebodyServes = Callable[[Iterable[str]], bool]


class EntityHost:
    """What runs on one runner. `serve` is the work of an owned shard."""

    def __init__(
        self,
        definitions: Mapping[str, EntityDefinition],
        mailboxes: Mailboxes,
        replies: Replies,
        caller: Caller,
        clock: Clock,
        settings: Settings,
        runner_id: str,
        *,
        cluster: Any,
        resource: Callable[[type[Any]], Any],
        note_wants: NoteWants,
        somebody_serves: SomebodyServes,
        singletons: SingletonHost,
        executions: Executions,
        crons: CronHost | None = None,
    ) -> None:
        self.definitions = definitions
        self.mailboxes = mailboxes
        self.commits = Batches(mailboxes.lanes, COMMIT)
        self.scheduled = Scheduled(mailboxes.lanes, mailboxes.keyspace, settings.mailbox.bytes_limit)
        self.replies = replies
        self.clock = clock
        self.limits = settings.mailbox
        self.runner_id = runner_id
        self.cluster = cluster
        self.resource = resource
        self.note_wants = note_wants
        self.somebody_serves = somebody_serves
        self.singletons = singletons
        self.executions = executions
        self.crons = crons
        """None where no crons are registered."""
        self.counters = RuntimeCounters()
        self.progress = Progress(self.counters, clock.now)
        self.residents = Residents(settings.entities.max_resident)
        self.suspects = anyio.Lock()
        """Messages that may have killed their runners run one at a time."""
        self.call_for_placement: Callable[[], Awaitable[None]] | None = None
        """Tells every runner that a shard here wants what this one does not serve."""
        self.doorway = Doorway()
        self.shards: dict[str, ShardHost] = {}
        self.depth = 0
        """Messages that waited or were handled when they were counted last."""
        self.buried = 0
        """Dead letters of its shards, likewise."""
        self.parked = 0
        """Messages that wait durably, likewise."""
        self._caller = caller

    async def serve(self, owned: OwnedShard) -> None:
        """Serve a shard until its hand-off."""
        host = ShardHost(self, owned)
        self.shards[str(owned.shard)] = host
        try:
            await host.run()
        finally:
            self.doorway.close(host)
            if self.shards.get(str(owned.shard)) is host:
                del self.shards[str(owned.shard)]
                self.progress.left(str(owned.shard))

    async def clean(self) -> None:
        """Forget the states of singletons nobody serves any more, for ever."""
        await self.singletons.clean(self.owned)

    def owned(self, shard: ShardId) -> OwnedShard | None:
        """Return a shard that is served here, None if it is not."""
        host = self.shards.get(str(shard))
        return None if host is None else host.owned

    async def sweep(self) -> None:
        """Passivate who has been idle for too long, for ever."""
        while True:
            await anyio.sleep(_SWEEP_EVERY)
            self.residents.passivate(self.clock.now())

    async def measure(self) -> None:
        """Count what waits in its shards now and then, for ever; metrics read it."""
        while True:
            await anyio.sleep(_MEASURE_EVERY)
            try:
                shards = [host.shard for host in self.shards.values()]
                counts = await asyncio.gather(*(self.mailboxes.count(shard) for shard in shards))
                parked = await asyncio.gather(*(self.executions.parking.count(shard) for shard in shards))
            except PersistenceFailedError:
                continue  # health tells of a store that does not answer
            self.depth = sum(waiting for waiting, _ in counts)
            self.buried = sum(dead for _, dead in counts)
            self.parked = sum(parked)

    async def poll(self) -> None:
        """Look once at everything that nudges may have missed."""
        if self.crons is not None:
            await self.crons.look()
        await asyncio.gather(*(host.poll() for host in list(self.shards.values())))

    def clock_moved(self) -> None:
        """A test has moved the clock on: look at schedules and idleness now."""
        for host in self.shards.values():
            host.timers.wake()
        self.singletons.clock_moved()
        self.executions.clock_moved()
        if self.crons is not None:
            self.crons.clock_moved()
        self.residents.passivate(self.clock.now())

    @property
    def unknown_names(self) -> list[str]:
        """Types and rpcs that messages here wait for."""
        return sorted({name for host in self.shards.values() for name in host.unknown.waiting})

    # What arrives in the inbox

    def on_mail(self, fields: list[bytes]) -> None:
        """Take a nudge: k m s shard e member f fence, and if short n entry i id c class m envelope."""
        host = self.shards.get(fields[3].decode())
        if host is None:
            return
        message = None
        if len(fields) > 8:
            message = Message(
                entry=fields[9].decode(),
                place=read_entry(fields[9]),
                id=fields[11].decode(),
                content=fields[15],
                kind=fields[13].decode(),
                is_claimed=False,
            )
        host.on_mail(fields[5].decode(), fields[7].decode(), message)

    def on_timer(self, fields: list[bytes]) -> None:
        """Take a nudge: k t s shard d due."""
        host = self.shards.get(fields[3].decode())
        if host is not None:
            host.timers.heard(int(fields[5]))

    # What its shards need

    def call(self, address: EntityAddress, rpc: str, options: CallOptions) -> RpcCall[Any, Any]:
        """Return the call of one rpc of an entity."""
        return rpc_call(self._caller, Target(self.definitions[address.type], address), rpc, options)

    def arrived(self, activation: EntityActivation) -> None:
        """An entity comes into memory."""
        self.residents.arrived(activation)

    def gone(self, activation: EntityActivation) -> None:
        """An entity has left memory."""
        self.residents.gone(activation)
