"""One entry of a cluster: what lives between joining and leaving, opened in order, closed in reverse.

`Cluster` is what users hold; a `Runner` is made when it is entered and gone when it is left.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import anyio
from prometheus_client import CollectorRegistry

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.delivery import DeadLetters, Mailboxes
from redis_cluster_kit.durable_plane import DurablePlane
from redis_cluster_kit.entity import CronDefinition, EntityDefinition, SingletonDefinition
from redis_cluster_kit.errors import JoinRefusedError, PersistenceFailedError
from redis_cluster_kit.identity import ShardId, new_nonce, new_runner_id
from redis_cluster_kit.ids import DatabaseMachineIds, IdMaker, MachineIdSource, RedisMachineIds
from redis_cluster_kit.joining import (
    RecordKeeper,
    boot_id,
    check_crons,
    check_eviction,
    check_one_host,
    check_weak_tier,
    wanted_record,
)
from redis_cluster_kit.messaging import Messaging, Served
from redis_cluster_kit.observe import HealthReport, Readable, Reading, Watchdog, collector_of, report
from redis_cluster_kit.ownership import (
    FenceKeys,
    FenceSource,
    LeaseNodes,
    Member,
    Membership,
    Ownership,
    RegisteredFences,
    ShardWork,
    Subscribers,
    WeakFences,
)
from redis_cluster_kit.redis_access import Keyspace, Lanes, RedisUrl
from redis_cluster_kit.runtime import (
    CronHost,
    Crons,
    EntityHost,
    SingletonHost,
    SingletonView,
    TickMessages,
    rarer_collections,
)
from redis_cluster_kit.settings import Settings
from redis_cluster_kit.storage import (
    ClusterRecord,
    Database,
    FenceRegister,
    MachineIds,
    RecordStore,
    SingletonStore,
    SqlCrons,
    SqlCronView,
    SqlTicks,
)

logger = logging.getLogger(__name__)

_AUDIT_EVERY = 30.0


class Identity(NamedTuple):
    """Who a runner is, and what it offers."""

    namespace: str
    name: str | None
    hosting: bool
    groups: Mapping[str, int]
    serves: Mapping[str, list[str]]
    definitions: Mapping[str, EntityDefinition]
    singletons: tuple[SingletonDefinition, ...]
    crons: tuple[CronDefinition, ...]


class Surroundings(NamedTuple):
    """What the runtime hands on from the cluster to the code it runs."""

    cluster: Any
    resource: Callable[[type[Any]], Any]
    metrics_registry: CollectorRegistry


class Runner(Readable):
    """A process that joined. Made inside `Runner.joined(...)` only."""

    def __init__(
        self,
        redis: str,
        database: str | None,
        settings: Settings,
        identity: Identity,
        serve: ShardWork,
        around: Surroundings,
        clock: Clock,
    ) -> None:
        self.settings = settings
        self.nonce = new_nonce()
        self.runner_id = new_runner_id(identity.name, self.nonce)
        self.clock = clock
        self.events = Subscribers()
        self.keyspace = Keyspace(identity.namespace, settings.shards.partitions)
        self._identity = identity
        self._serve = serve
        self._registry = around.metrics_registry
        self._ttl = settings.lease.ttl.total_seconds()
        url = RedisUrl.parse(redis)
        self.commands = Lanes(url, settings.redis)
        self._lease_lanes = [
            self._lease_lane(RedisUrl.parse(node)) for node in settings.lease.nodes or [redis]
        ]
        self.leases = LeaseNodes(self._lease_lanes, self.keyspace, self.runner_id, settings.lease)
        self.database = (
            None if database is None else Database(database, settings.database, ttl=settings.lease.ttl)
        )
        self.keys = FenceKeys(
            self.commands,
            self.keyspace,
            self.runner_id,
            self.nonce,
            colocated=not settings.lease.nodes,
        )
        self.membership = Membership(
            self._lease_lane(url) if settings.lease.nodes else self._lease_lanes[0],
            self.keyspace,
            self.clock,
            self._describe(),
            settings.lease.ttl,
        )
        self.ids = IdMaker(self._id_source(), self.clock, self._id_lease())
        plane = DurablePlane(
            self.database, self.commands, self.keyspace, self.clock, settings, self.runner_id
        )
        self.executions = plane.executions()
        self.kv = plane.key_value()
        store = plane.singletons()
        self.singletons = SingletonView(store, settings.statement_timeout.total_seconds())
        self.messaging = Messaging(
            url,
            settings,
            self.commands,
            self.keyspace,
            clock,
            self.keys,
            self.membership,
            self._make_served(identity, store, around) if identity.hosting else None,
        )
        self.ownership: Ownership | None = None
        self.record: ClusterRecord | None = None
        self.draining = anyio.Event()
        self.watchdog = Watchdog(settings.health)
        self._is_joined = False
        self._remark = ""

    def _make_served(self, identity: Identity, store: SingletonStore, around: Surroundings) -> Served:
        singletons = SingletonHost(
            identity.singletons,
            identity.groups,
            store,
            self.executions,
            self.clock,
            self.settings,
            self.runner_id,
            cluster=around.cluster,
            resource=around.resource,
            generate_id=self.ids.next,
        )

        def make_crons(mailboxes: Mailboxes) -> CronHost | None:
            database = self.database
            if not identity.crons or database is None:
                return None
            return CronHost(
                identity.crons,
                identity.groups,
                SqlCrons(database, identity.namespace),
                SqlTicks(database, identity.namespace),
                TickMessages(mailboxes, identity.groups),
                self.clock,
                self.settings,
                cluster=around.cluster,
                resource=around.resource,
                generate_id=self.ids.next,
            )

        return Served(
            identity.definitions, singletons, self.executions, make_crons, around.cluster, around.resource
        )

    def _lease_lane(self, url: RedisUrl) -> Lanes:
        """Leases have a connection of their own, and a lost attempt is not repeated: the next round comes."""
        return Lanes(url, self.settings.redis, role="lease", retry_for=0.0, stall_timeout=self._ttl / 3)

    def _describe(self) -> Member:
        return Member(
            runner_id=self.runner_id,
            host=socket.gethostname(),
            boot_id=boot_id(),
            pid=os.getpid(),
            weight=self.settings.shards.weight,
            hosting=self._identity.hosting,
            serves={group: sorted(names) for group, names in self._identity.serves.items()},
        )

    def _id_lease(self) -> timedelta:
        return self.settings.lease.ttl if self.database is None else self.settings.machine_ids.lease

    def _id_source(self) -> MachineIdSource:
        lease = self.settings.lease
        if self.database is None:
            return RedisMachineIds(self.commands, self.keyspace, self.nonce, lease.ttl, lease.margin)
        ids = MachineIds(self.database, self._identity.namespace)
        return DatabaseMachineIds(ids, self.nonce, self._id_lease(), self._ttl)

    @asynccontextmanager
    async def running(
        self, lifespan: Callable[[], AbstractAsyncContextManager[object]]
    ) -> AsyncGenerator[None]:
        """Open everything in order, join, and close in reverse."""
        async with AsyncExitStack() as stack:
            stack.enter_context(self.watchdog.watching())
            opened = (self.commands, *self.messaging.lanes, *self._lease_lanes)
            for lanes in (*opened, self.membership.lanes):
                await stack.enter_async_context(lanes)
            stack.callback(self.events.close)
            await self._open_database(stack)
            await self._check()
            await self.executions.join()
            await self.ids_ready()
            stack.push_async_callback(self.ids.release)
            await self.messaging.inbox.keep()
            stack.push_async_callback(self.messaging.inbox.remove)
            stack.callback(setattr, self.messaging, "is_closed", True)
            collector = collector_of(self._registry)
            collector.add(self)
            stack.callback(collector.remove, self)
            await stack.enter_async_context(lifespan())
            background = await stack.enter_async_context(anyio.create_task_group())
            background.start_soon(self.ids.keep)
            background.start_soon(self._audit)
            background.start_soon(self.messaging.inbox.live)
            stack.callback(background.cancel_scope.cancel)
            if self.host is not None:
                stack.enter_context(rarer_collections(self.settings.entities.gc_threshold))
                background.start_soon(self.host.sweep)
                background.start_soon(self.host.measure)
                background.start_soon(self.host.clean)
                background.start_soon(self.executions.watch)
                if self.host.crons is not None:
                    background.start_soon(self.host.crons.keep)
                self.ownership = self._make_ownership()
                wake = self.ownership.wake
                self.messaging.inbox.handlers |= {
                    b"free": wake,
                    b"members": wake,
                    b"wants": self.ownership.replan,
                }
                self.host.call_for_placement = self.ownership.call_for_placement
                await stack.enter_async_context(self.ownership.running())
            self._is_joined = True
            stack.callback(setattr, self, "_is_joined", False)
            yield

    async def _open_database(self, stack: AsyncExitStack) -> None:
        if self.database is not None:
            await stack.enter_async_context(self.database)
            await self.database.prepare(self.settings.database.create_tables)

    async def _check(self) -> None:
        """Everything that may refuse, before anything is taken."""
        await check_eviction(self.commands, self.settings.redis)
        await self.membership.refresh()
        store = None
        if self.database is None:
            if self._identity.hosting:
                check_crons(self._identity.crons)
                await check_weak_tier(self.commands, self.settings.redis)
        else:
            store = RecordStore(self.database, self._identity.namespace)
            if self.database.host_bound:
                check_one_host(self.membership.me, self.membership.members)
        self._keeper = RecordKeeper(self.commands, self.keyspace, store, max(self._ttl, 5.0))
        self.record = await self._keeper.settle(wanted_record(self.settings, self._identity.groups))

    async def ids_ready(self) -> None:
        """Claim a machine id at once if there is one to be had; otherwise it comes later."""
        try:
            await self.ids.refresh()
        except PersistenceFailedError as error:
            self.ids.trouble = str(error)

    def _make_ownership(self) -> Ownership:
        settings = self.settings
        fences: FenceSource = WeakFences(self.keys)
        if self.database is not None:
            fences = RegisteredFences(FenceRegister(self.database, self._identity.namespace), self.keys)
        return Ownership(
            groups=self._identity.groups,
            settings=settings.lease,
            budget=settings.drain.budget,
            clock=self.clock,
            leases=self.leases,
            keys=self.keys,
            fences=fences,
            membership=self.membership,
            inbox=self.messaging.inbox,
            serve=self._serve,
            publish=self.events.publish,
        )

    async def _audit(self) -> None:
        """Now and then, for ever."""
        while True:
            await anyio.sleep(_AUDIT_EVERY)
            await self.audit()

    async def audit(self) -> None:
        """Look again at what others may undo: the eviction policy may have been changed, the record wiped."""
        try:
            await check_eviction(self.commands, self.settings.redis)
            assert self.record is not None
            await self._keeper.write(self.record)
            await self.membership.refresh()  # a runner that only sends hears the server's time here
        except JoinRefusedError as error:
            self._remark = str(error)
            logger.error("the cluster is not safe any more: %s", error)  # noqa: TRY400 - no traceback needed
        except PersistenceFailedError as error:
            logger.warning("the audit of Redis failed: %s", error)
        else:
            self._remark = ""

    def read(self) -> Reading:
        """Return what metrics show."""
        members = self.membership.members.values()
        calls = self.messaging.caller.counters
        reading = Reading(
            self.keyspace.namespace,
            loop_lag_seconds=max(self.watchdog.lag, self.watchdog.stalled_for),
            runners=sum(member.hosting for member in members),
            runners_healthy=sum(member.hosting and not member.draining for member in members),
            calls={
                "ask": calls.asks,
                "send": calls.sends,
                "refused_full": calls.full,
                "timed_out": calls.timeouts,
                "looked_up": calls.lookups,
            },
        )
        reading.durable, reading.executions_set_aside = self.executions.counters, self.executions.aside
        if self.ownership is not None:
            reading.shards = len(self.ownership.owned)
            reading.shards_missing = len(self.ownership.missing)
        if self.host is not None:
            reading.entities = len(self.host.residents)
            reading.counters = self.host.counters
            reading.parked = self.host.parked
            reading.mailbox_messages, reading.dead_letters = self.host.depth, self.host.buried
            singletons = self.host.singletons
            reading.singletons, reading.singleton_counters = singletons.led, singletons.counters
            reading.singletons_unhealthy = sum(not how.is_ready for how in singletons.health().values())
            if self.host.crons is not None:
                reading.cron_counters = self.host.crons.counters
        return reading

    def dead_letters(self) -> DeadLetters:
        """Return the way to the cluster's dead letters."""
        assert self.record is not None
        counts = dict(self.record.shard_counts)
        return DeadLetters(self.commands, self.keyspace, counts, self.settings.mailbox.bytes_limit)

    def crons(self) -> Crons:
        """Return the way to the cluster's crons."""
        if self.database is None:
            raise RuntimeError("there are no crons without a database: pass database=…")
        assert self.record is not None
        messages = TickMessages(self.messaging.mailboxes, dict(self.record.shard_counts))
        store = SqlCronView(self.database, self._identity.namespace)
        timeout = self.settings.statement_timeout.total_seconds()
        registered = {cron.name for cron in self._identity.crons}
        return Crons(store, messages, self.clock, timeout, registered)

    @property
    def host(self) -> EntityHost | None:
        """The host of its entities; None if it only sends."""
        return self.messaging.host

    async def poll(self) -> None:
        """Read everything once that nudges may have missed."""
        if self.host is not None:
            await self.host.poll()

    async def kill(self) -> None:
        """End as a killed process does, for tests: nothing more is written, nothing is given back."""
        if self.ownership is not None:
            self.ownership.abandon()
        for lanes in (self.commands, *self.messaging.lanes, *self._lease_lanes, self.membership.lanes):
            await lanes.close()

    def begin_drain(self) -> None:
        """Start giving shards away."""
        self.draining.set()
        if self.ownership is not None:
            self.ownership.drain_soon()

    async def drained(self) -> None:
        """Wait until every shard is given away."""
        if self.ownership is not None:
            await self.ownership.drain()

    def owns(self, shard: ShardId) -> bool:
        """Whether this runner owns the shard now."""
        owned = None if self.ownership is None else self.ownership.owned.get(shard)
        return owned is not None and owned.is_held

    async def health(self) -> HealthReport:
        """Ask the stores, and say what is known."""
        remarks = [text for text in (self._remark, self.ids.trouble and f"ids: {self.ids.trouble}") if text]
        if self.messaging.inbox.trouble:
            remarks.append(f"no nudges arrive: {self.messaging.inbox.trouble}")
        if self.host is not None:
            remarks += [
                f"messages wait for {name}, which is not known here" for name in self.host.unknown_names
            ]
            remarks += self.host.singletons.remarks
            remarks += [] if self.host.crons is None else self.host.crons.remarks
        if self.executions.aside:
            remarks.append(f"{self.executions.aside} executions are set aside: cluster.executions lists them")
        if self.ownership is not None:
            remarks += [
                f"runners of group {group} serve types that do not contain one another; give each set "
                "a shard_group of its own"
                for group in self.ownership.incomparable_groups
            ]
        database = self.database
        return await report(
            self.runner_id,
            ownership=self.ownership,
            hosting=self._identity.hosting,
            leases=self.leases,
            ping_redis=self._ping_redis,
            ping_database=None if database is None else lambda timeout: database.ping(timeout=timeout),
            troubles=self._troubles(),
            remarks=remarks,
            is_live=self.watchdog.is_alive,
            singletons={} if self.host is None else self.host.singletons.health(),
        )

    def _troubles(self) -> Iterator[str]:
        """Yield what keeps traffic away, beside stores and shards."""
        if self.host is None:  # of a runner that hosts, its shards say so
            if not self._is_joined:
                yield "joining or leaving"
            if self.draining.is_set():
                yield "draining"
        yield self.watchdog.trouble
        if self.host is not None and self.host.crons is not None:
            yield self.host.crons.trouble
        stuck = 0.0 if self.host is None else self.host.progress.stuck_for
        if stuck >= self.settings.health.progress.total_seconds():
            yield f"nothing was consumed for {stuck:.0f} s although messages wait"

    async def _ping_redis(self) -> None:
        with anyio.move_on_after(1.0) as scope:
            await self.membership.lanes.call(self.keyspace.home_slot, "PING", repeat=True)
        if scope.cancelled_caught:
            raise PersistenceFailedError(store="redis", detail="no answer within 1 s")
