"""`Cluster`, what users hold: registration before it is entered, one `Runner` while it is.

It may be entered again, on another event loop too. Everything it does while entered is the runner's.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar, cast, overload

import anyio
from prometheus_client import REGISTRY, CollectorRegistry

from redis_cluster_kit.calling import MessageReceipt, Target, make_proxy, rpc_call
from redis_cluster_kit.clock import Clock
from redis_cluster_kit.delivery import DeadLetters
from redis_cluster_kit.entity import (
    NO_OPTIONS,
    CronDefinition,
    Entity,
    EntityDefinition,
    Receipt,
    Registering,
    Registry,
    RpcCall,
    RpcMethod,
    SingletonDefinition,
    SingletonMetadata,
    SingletonState,
    define,
)
from redis_cluster_kit.envelope import ENVELOPE_VERSION
from redis_cluster_kit.errors import EntityError
from redis_cluster_kit.identity import (
    EntityAddress,
    ShardId,
    check_entity_id,
    check_name,
    parse_message_id,
    shard_number,
)
from redis_cluster_kit.life import Life
from redis_cluster_kit.observe import HealthReport
from redis_cluster_kit.ownership import SINGLETON, ClusterEvent, OwnedShard
from redis_cluster_kit.runner import Identity, Runner, Surroundings
from redis_cluster_kit.runtime import Crons, SetAsideExecutions
from redis_cluster_kit.settings import Settings
from redis_cluster_kit.snowflake import Snowflake
from redis_cluster_kit.storage.key_value import KeyValueStore

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
E = TypeVar("E", bound=Entity[Any])
DEFAULT_GROUP = "default"


class _Stores(NamedTuple):
    redis: str
    database: str | None

    def __repr__(self) -> str:
        return "_Stores(…)"  # URLs hold passwords, and error reporters show the values they meet


class Cluster(Registering):
    """A set of services that behaves as one; each process that enters it becomes a runner.

    `async with cluster:` joins, leases shards and serves them; leaving hands them off. Nothing is connected
    before, no signal handler is installed (`run_forever` does that), and it may be entered again.
    """

    def __init__(
        self,
        redis: str,
        database: str | None = None,
        *,
        namespace: str = "default",
        entities: Iterable[type[Entity[Any]]] = (),
        include: Iterable[Registry] = (),
        lifespan: Callable[[Cluster], AbstractAsyncContextManager[object]] | None = None,
        hosting: bool = True,
        name: str | None = None,
        settings: Settings | None = None,
        metrics_registry: CollectorRegistry = REGISTRY,
    ) -> None:
        """Describe the cluster; see the class for when it is joined.

        `database=None` is the weaker tier: fences are then only as good as Redis' memory. `name` is what
        runner ids begin with, the host's name by default.
        """
        self.namespace = check_name("namespace", namespace)
        self.settings = settings or Settings()
        self._stores = _Stores(redis, database)
        self._hosting = hosting
        self._name = name
        self._lifespan = lifespan
        self._metrics_registry = metrics_registry
        self._is_embedded = False
        self._folder: Path | None = None
        self._registry = Registry()
        self._definitions: Mapping[str, EntityDefinition] = {}
        for entity in entities:
            self._registry.entity(entity)
        for registry in include:
            self._registry.include(registry)
        self._resources: dict[type[Any], Any] = {}
        self._runner: Runner | None = None
        self._life: Life | None = None
        self._make_clock: Callable[[], Clock] = Clock

    def __repr__(self) -> str:
        state = "not joined" if self._runner is None else self._runner.runner_id
        return f"Cluster(namespace={self.namespace!r}, {state})"

    @classmethod
    def embedded(cls, folder: str | Path | None = None, **options: Any) -> Cluster:
        """Return a cluster that starts its own Valkey and an SQLite file when it is entered.

        Needs the `embedded` extra. With `folder` both are kept there and found again; without, they are
        temporary. `options` are those of `Cluster`.
        """
        cluster = cls("redis://embedded", None, **options)
        cluster._folder = None if folder is None else Path(folder)
        cluster._is_embedded = True
        return cluster

    # Joining and leaving

    async def __aenter__(self) -> Self:
        if self._life is not None:
            raise RuntimeError("this cluster is entered already; make a second Cluster for a second runner")
        _require_asyncio()
        self._definitions = self._registry.close()
        self._life = Life(self._run)
        try:
            await self._life.begin()
        except BaseException:
            self._forget()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._life is not None
        try:
            await self._life.end()
        finally:
            self._forget()

    def _forget(self) -> None:
        self._life = None
        self._runner = None
        self._resources.clear()

    async def _run(self, joined: Callable[[], Awaitable[None]]) -> None:
        """Be a runner, from joining to leaving; `joined` returns when it is time to leave."""
        async with self._open_stores() as stores:
            runner = Runner(
                stores.redis,
                stores.database,
                self.settings,
                self._identity(),
                self._serve,
                Surroundings(self, self.resource, self._metrics_registry),
                self._make_clock(),
            )
            self._runner = runner
            try:
                async with runner.running(self._living):
                    await joined()
            finally:
                runner.draining.set()

    @asynccontextmanager
    async def _open_stores(self) -> AsyncGenerator[_Stores]:
        if not self._is_embedded:
            yield self._stores
            return
        from redis_cluster_kit.embedded import both_stores

        async with both_stores(self._folder) as (redis, database):
            yield _Stores(redis, database)

    @asynccontextmanager
    async def _living(self) -> AsyncGenerator[None]:
        if self._lifespan is None:
            yield
            return
        async with self._lifespan(self):
            yield

    def _identity(self) -> Identity:
        """What this runner offers: the types of its entities, by shard group."""
        serves: dict[str, list[str]] = {}
        for definition in self._definitions.values():
            names = serves.setdefault(definition.shard_group, [f"envelope/{ENVELOPE_VERSION}"])
            names.append(definition.name)
            names += [f"{definition.name}/{rpc}" for rpc in definition.rpcs]
        singletons = tuple(self._registry.singletons())
        for singleton in singletons:
            names = serves.setdefault(singleton.shard_group, [f"envelope/{ENVELOPE_VERSION}"])
            names.append(f"{SINGLETON}{singleton.name}")
        crons = tuple(self._registry.crons())  # their ticks are among the definitions
        if not serves:
            serves = {DEFAULT_GROUP: []}
        groups = {group: self.settings.shards.count(group) for group in serves}
        return Identity(
            self.namespace, self._name, self._hosting, groups, serves, self._definitions, singletons, crons
        )

    async def _serve(self, owned: OwnedShard) -> None:
        """Serve one owned shard until its hand-off."""
        host = self._joined().host
        assert host is not None
        await host.serve(owned)

    async def run_forever(self) -> None:
        """Serve until SIGTERM or SIGINT, or `begin_drain`; then drain. A second signal exits at once."""
        runner = self._joined()
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_signals, signals)
                await runner.draining.wait()
                await runner.drained()
                tasks.cancel_scope.cancel()

    async def _watch_signals(self, signals: AsyncIterator[signal.Signals]) -> None:
        async for number in signals:
            if self.is_shutting_down:
                # At once means at once: leases end by themselves, and fences guard whatever is cut short.
                os._exit(128 + number)
            self.begin_drain()

    def begin_drain(self) -> None:
        """Start giving shards away; `run_forever` returns when all are gone."""
        self._joined().begin_drain()

    @property
    def is_shutting_down(self) -> bool:
        """Whether this runner gives its shards away."""
        return self._runner is not None and self._runner.draining.is_set()

    # What is registered and provided

    def include(self, registry: Registry) -> None:
        """Add what a registry of another module holds; only before the cluster is entered."""
        self._registry.include(registry)

    def add_singleton(self, definition: SingletonDefinition) -> None:
        """Add a singleton's definition; `singleton` makes one of what it decorates."""
        self._registry.add_singleton(definition)

    def add_cron(self, definition: CronDefinition) -> None:
        """Add a cron's definition; `cron` makes one of what it decorates."""
        self._registry.add_cron(definition)

    def provide(self, type: type[T], value: T) -> None:
        """Make `value` what `resource(type)` returns, until the cluster is left; for `lifespan`."""
        self._resources[type] = value

    def resource(self, type: type[T]) -> T:
        """Return what `lifespan` provided for `type`; LookupError if nothing was."""
        try:
            return cast("T", self._resources[type])
        except KeyError:
            name = type.__qualname__
            raise LookupError(f"no resource {name}: let lifespan call cluster.provide({name}, …)") from None

    @property
    def kv(self) -> KeyValueStore:
        """Values by key, shared by all pods: in the database, cached in Redis; in Redis alone without one."""
        return self._joined().kv

    @property
    def metrics_registry(self) -> CollectorRegistry:
        """The registry that this cluster's metrics are in."""
        return self._metrics_registry

    # Calling

    def entity(self, type: type[E], id: str, /) -> E:
        """Return a proxy of an entity, typed as `type`: it offers the rpcs, `id`, `address` and `cluster`.

        There is no I/O, and the entity need not exist: its first message makes it.
        """
        return cast("E", make_proxy(lambda: self._joined().messaging.caller, self, self._target(type, id)))

    @overload
    async def send(
        self, to: EntityAddress, method: RpcMethod[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Receipt[R]: ...
    @overload
    async def send(self, to: RpcCall[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Receipt[R]: ...
    async def send(self, to: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Send a message: `send(alice.deposit, 10)`, or by address `send(address, Account.deposit, 10)`."""
        if isinstance(to, RpcCall):
            return await cast("RpcCall[..., Any]", to).send(*args, **kwargs)
        address, (method, *rest) = cast("EntityAddress", to), args
        target = self._target(method.entity, address.id)
        if address.type != target.address.type:
            raise ValueError(f"{address} has no rpc of {target.address.type!r}: {method!r}")
        return await rpc_call(self._joined().messaging.caller, target, method.name, NO_OPTIONS).send(
            *rest, **kwargs
        )

    async def broadcast(self, method: RpcMethod[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> int:
        """Send a message to every entity of the type that is in memory; return how many took it.

        A runner that does not answer within 5 s counts for nothing.
        """
        return await self._joined().messaging.broadcast(define(method.entity), method.name, args, kwargs)

    @overload
    def receipt(self, message_id: str, /) -> Receipt[Any]: ...
    @overload
    def receipt(self, message_id: str, result: type[T], /) -> Receipt[T]: ...
    def receipt(self, message_id: str, result: Any = Any, /) -> Receipt[Any]:
        """Return the receipt of a message whose id was stored; `result` is the type its rpc returns.

        Type checkers take classes there and `list[int]`, no unions: without it the result is as it came.
        """
        address = parse_message_id(message_id)
        shard = self._shard_in(address.group, address.type, address.entity_id)
        member = f"{address.type}:{address.entity_id}"
        definition = self._definitions.get(address.type)
        raises = {} if definition is None else _all_errors(definition)
        return MessageReceipt(
            self._joined().messaging.caller,
            shard,
            member,
            address.id,
            result=result,
            raises=raises,
            patience=1.0,
        )

    async def cancel(self, message_id: str, /) -> bool:
        """Withdraw a message nobody has taken yet. True: it will have no state effect. False: too late."""
        address = parse_message_id(message_id)
        shard = self._shard_in(address.group, address.type, address.entity_id)
        return await self._joined().messaging.mailboxes.cancel(
            shard, f"{address.type}:{address.entity_id}", address.id
        )

    async def reset(self, entity: type[Entity[Any]], id: str, /) -> None:
        """Forget an entity's undelivered messages and its replies; its state stays."""
        target = self._target(entity, id)
        await self._joined().messaging.mailboxes.reset(target.address.shard, target.member, with_state=False)

    async def delete(self, entity: type[Entity[Any]], id: str, /) -> None:
        """Forget an entity's undelivered messages, its replies and its state."""
        target = self._target(entity, id)
        await self._joined().messaging.mailboxes.reset(target.address.shard, target.member, with_state=True)

    @property
    def dead_letters(self) -> DeadLetters:
        """The messages nobody tries again by themselves: `.list(type=…)`, `.replay(id)`, `.drop(id)`."""
        return self._joined().dead_letters()

    @property
    def crons(self) -> Crons:
        """The cluster's crons: `.list()`, `.pause(name)`, `.resume(name)`, `.trigger(name)`."""
        return self._joined().crons()

    async def poll(self) -> None:
        """Read everything once, now, that this runner would otherwise see at its next poll."""
        await self._joined().poll()

    # Durable steps

    async def complete(self, token: str, value: object, /) -> bool:
        """Resolve a deferred by its token, once.

        True if this call did; False if it had been resolved before, or nothing can wait for it any more.

        `TokenRefusedError`: no token of this cluster. When this returns the database has it, also if nobody
        waits yet. A `PersistenceFailedError` leaves it open whether it is resolved: call again.
        """
        return await self._joined().executions.resolver.complete(token, value)

    async def fail(self, token: str, text: str, /) -> bool:
        """The same, with a failure: who waits gets a `DeferredFailedError` with this text."""
        return await self._joined().executions.resolver.fail(token, text)

    @property
    def executions(self) -> SetAsideExecutions:
        """Singletons' executions that failed too often: `.list()`, `.retry(id)`, `.drop(id)`."""
        return self._joined().executions.set_aside

    # Singletons

    async def singleton_state(
        self, name: str, type: type[T], /, *, fresh: bool = False, shard_group: str | None = None
    ) -> SingletonState[T] | None:
        """Return a singleton's state with its version and age, from any pod; None before its first save.

        It is read from the copy in Redis; `fresh` reads the database. `shard_group` is needed only where the
        singleton is not registered.
        """
        shard = self._singleton_shard(name, shard_group)
        return await self._joined().singletons.state(name, shard, type, fresh=fresh)

    async def singleton_metadata(
        self, name: str, /, *, fresh: bool = False, shard_group: str | None = None
    ) -> SingletonMetadata | None:
        """Return last run, run count and last error, from any pod; None if nobody has led it yet."""
        shard = self._singleton_shard(name, shard_group)
        return await self._joined().singletons.metadata(name, shard, fresh=fresh)

    def _singleton_shard(self, name: str, group: str | None) -> ShardId:
        known = {one.name: one.shard_group for one in self._registry.singletons()}
        return self._shard_in(group or known.get(name, DEFAULT_GROUP), "singleton", name)

    def _target(self, entity: type[Entity[Any]], id: str) -> Target:
        definition = define(entity)
        return Target(definition, EntityAddress(definition.name, id, self.shard_of(entity, id)))

    # Where things are

    @property
    def runner_id(self) -> str:
        """This process' id, as `owner_of` returns it on every pod."""
        return self._joined().runner_id

    def shard_of(self, entity: type[Entity[Any]], id: str) -> ShardId:
        """Return the shard an entity belongs to: the same on every pod, and without I/O."""
        definition = define(entity)
        return self._shard_in(definition.shard_group, definition.name, check_entity_id(id))

    def _shard_in(self, group: str, type: str, id: str) -> ShardId:
        record = None if self._runner is None else self._runner.record
        counts = {} if record is None else record.shard_counts
        count = counts.get(group) or self.settings.shards.count(group)
        return ShardId(group, shard_number(type, id, count))

    async def owner_of(self, entity: type[Entity[Any]], id: str) -> str | None:
        """Return the id of the runner that holds the entity's shard now, None if nobody does."""
        shard = self.shard_of(entity, id)
        owners = await self._joined().leases.owners([shard])
        return owners[shard]

    def is_local(self, entity: type[Entity[Any]], id: str) -> bool:
        """Return whether this runner owns the entity's shard now."""
        return self._joined().owns(self.shard_of(entity, id))

    def generate_id(self) -> Snowflake:
        """Return a new id, unique in the cluster; `PersistenceFailedError` while no machine id is leased."""
        return self._joined().ids.next()

    # What happens

    def events(self) -> AsyncIterator[ClusterEvent]:
        """Yield `ShardGained`, `ShardLost`, `RunnerJoined` and `RunnerLeft` as they come, from now on."""
        return self._joined().events.listen()

    async def health(self) -> HealthReport:
        """Return whether this runner can do its part, and if not, why."""
        return await self._joined().health()

    def with_clock(self, clock: Clock) -> Self:
        """Use this clock, which a test moves; before the cluster is entered."""
        self._make_clock = lambda: clock
        return self

    def joined_runner(self) -> Runner:
        """Return what runs while the cluster is entered: for tests and tools, its names may change."""
        return self._joined()

    def _joined(self) -> Runner:
        if self._runner is None:
            raise RuntimeError("this cluster is not entered: use `async with cluster:`")
        return self._runner


def _all_errors(definition: EntityDefinition) -> dict[str, type[EntityError]]:
    return {code: error for rpc in definition.rpcs.values() for code, error in rpc.raises.items()}


def _require_asyncio() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "the kit runs on anyio's asyncio backend: anyio.run(main, backend='asyncio')"
        ) from None
