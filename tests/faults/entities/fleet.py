"""Pods in processes of their own, senders in this one, and what the store says of both."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from redis_cluster_kit import Cluster, ShardId
from redis_cluster_kit.codec import decode
from redis_cluster_kit.redis_access import Keyspace, Lanes
from redis_cluster_kit.redis_access.keyspace import kind_of
from redis_cluster_kit.testing import ChildEvent, ChildProcess, until

from .pod import Applied, Keeper, Lodger, settings_of

PROGRAM = f"{Path(__file__).with_name('pod.py')}:main"
FLOOD = PROGRAM.replace(":main", ":flood")
STAY = {"entity", "fence", "live", "outbox", "record", "born", "machines"}
"""Kinds of keys that are meant to stay when everybody has gone and every window has passed."""
GUARD = 90.0
"""Hang guard of every wait; nothing is measured with it."""


@dataclass
class Fleet:
    """Pods of one cluster, and a runner here that only sends. `async with`."""

    redis: str
    database: str
    namespace: str
    folder: Path
    shards: int = 4
    ttl: float = 1.0
    window: float = 600.0
    pythonpath: Sequence[Path] = ()
    pods: dict[str, ChildProcess] = field(default_factory=dict[str, ChildProcess])
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _sender: Cluster | None = None

    async def __aenter__(self) -> Fleet:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    # Who there is

    @property
    def options(self) -> dict[str, Any]:
        """What pods and senders are told."""
        return {
            "redis": self.redis,
            "database": self.database,
            "namespace": self.namespace,
            "shards": self.shards,
            "ttl": self.ttl,
            "window": self.window,
        }

    async def join(self, *names: str, **options: Any) -> None:
        """Start pods at once; return when they have joined."""
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(self._join, name, options)

    async def _join(self, name: str, options: Mapping[str, Any]) -> None:
        given = json.dumps({**self.options, "name": name, **options})
        pod = ChildProcess(PROGRAM, given, name=name, pythonpath=self.pythonpath)
        await self._stack.enter_async_context(pod)
        self.pods[name] = pod
        await pod.wait_for("serving", timeout=GUARD)

    async def sender(self, redis: str | None = None) -> Cluster:
        """Return the runner of this process, made at the first call; `redis`: by which way it sends."""
        if self._sender is None:
            cluster = Cluster(
                redis or self.redis,
                self.database,
                namespace=self.namespace,
                hosting=False,
                name="sender",
                settings=settings_of(self.options),
            )
            self._sender = await self._stack.enter_async_context(cluster)
        return self._sender

    async def leave(self, *names: str) -> None:
        """Let pods go politely."""
        for name in names:
            self.pods[name].terminate()
        for name in names:
            assert await self.pods[name].wait(timeout=GUARD) == 0, self.pods[name].tail

    async def report(self, name: str) -> ChildEvent:
        """Ask a pod what it owns and what it has counted."""
        await self.pods[name].send("report")
        return await self.pods[name].wait_for("report", timeout=GUARD)

    async def counted(self, *names: str) -> Counter[str]:
        """The counters of these pods, added up."""
        total: Counter[str] = Counter()
        for name in names:
            fields = (await self.report(name)).fields
            total.update({key: value for key, value in fields.items() if isinstance(value, int)})
        return total

    async def owner(self, id: str) -> str:
        """The pod that has the lease of an entity's shard; waits until one has that is not dead."""
        sender = await self.sender()

        async def holder() -> str | None:
            name = (await sender.owner_of(Keeper, id) or "").rpartition("-")[0]
            pod = self.pods.get(name)
            return name if pod is None or pod.returncode is None else None

        name = await until(holder, timeout=GUARD, what=f"an owner of {id}")
        assert name is not None
        return name

    # What is in the store

    @asynccontextmanager
    async def hosting_here(self, redis: str) -> AsyncIterator[Cluster]:
        """Host in this process, by another way to Redis; the way itself is then what is tested."""
        cluster = Cluster(
            redis,
            self.database,
            namespace=self.namespace,
            name="here",
            entities=[Keeper, Lodger],
            settings=settings_of(self.options),
        )
        async with cluster:
            yield cluster

    @property
    def store(self) -> tuple[Lanes, Keyspace]:
        """The sender's own way to the data."""
        assert self._sender is not None
        assert self._sender._runner is not None
        return self._sender._runner.commands, self._sender._runner.keyspace

    async def applied(self, id: str) -> list[str]:
        """What an entity's stored state lists."""
        lanes, keyspace = self.store
        assert self._sender is not None
        keys = keyspace.of(self._sender.shard_of(Keeper, id))
        content = await lanes.call(keys.slot, "HGET", keys.entity(f"keeper:{id}"), "b", repeat=True)
        return [] if content is None else decode(content, Applied).marks

    async def passed_on(self, target: str, source: str) -> list[str]:
        """What a target has got from a source's turns, in order."""
        prefix = f"{source}>"
        return [mark.removeprefix(prefix) for mark in await self.applied(target) if mark.startswith(prefix)]

    async def depth(self, id: str) -> int:
        """How many messages an entity's mailbox holds."""
        lanes, keyspace = self.store
        assert self._sender is not None
        keys = keyspace.of(self._sender.shard_of(Keeper, id))
        length: int = await lanes.call(keys.slot, "XLEN", keys.mailbox(f"keeper:{id}"), repeat=True)
        return length

    async def markers(self) -> dict[str, list[str]]:
        """What is remembered of messages that are not handled: phase, class, check and the rest."""
        lanes, keyspace = self.store
        found: dict[str, list[str]] = {}
        for number in range(self.shards):
            keys = keyspace.of(ShardId("default", number))
            pairs = [text.decode() for text in await lanes.call(keys.slot, "HGETALL", keys.live, repeat=True)]
            found |= {
                place: marker.split(" ", 3)
                for place, marker in zip(pairs[::2], pairs[1::2], strict=True)
                if place  # the one without a name is there for the server's sake
            }
        return found

    async def deaths(self, id: str) -> int:
        """The most deaths that any message of an entity has to its name now."""
        markers = await self.markers()
        taken = [rest for place, rest in markers.items() if place.startswith(f"keeper:{id}\n")]
        return max((int(rest[3].split()[3]) for rest in taken if rest[0] in "wt"), default=0)

    async def kinds(self) -> Counter[str]:
        """How many keys of each kind the namespace has; those of a kind that nobody knows are `None`."""
        lanes, keyspace = self.store
        found: Counter[str] = Counter()
        for keys in await lanes.call_each_master("KEYS", keyspace.pattern()):
            found.update(str(getattr(kind_of(key), "name", None)) for key in keys)
        return found

    async def drained(self) -> None:
        """Wait until nothing waits, is taken, scheduled or on its way anywhere."""

        async def nothing() -> bool:
            kinds = await self.kinds()
            return not kinds["active"] and not await self.markers() and await self.sent_nothing()

        try:
            await until(nothing, timeout=GUARD, every=0.05, what="nothing to be stuck")
        except AssertionError as error:
            error.add_note(f"keys: {await self.kinds()}, markers: {await self.markers()}")
            raise

    async def sent_nothing(self) -> bool:
        """Whether no outbox holds anything."""
        lanes, keyspace = self.store
        shards = [keyspace.of(ShardId("default", number)) for number in range(self.shards)]
        lengths = [await lanes.call(keys.slot, "XLEN", keys.outbox, repeat=True) for keys in shards]
        return not any(lengths)

    async def only_state_stays(self) -> None:
        """Wait until the idle are passivated: then what is left is state, and markers that expire."""
        meant = STAY | {"done", "lease", "inbox", "members", "alive", "version", "outbox"}

        async def rest() -> set[str]:
            return set(await self.kinds()) - meant

        async def nothing() -> bool:
            return not await rest()

        try:
            await until(nothing, timeout=GUARD, every=0.1, what="no mailbox to be left")
        except AssertionError as error:
            error.add_note(f"left: {await rest()}")
            raise
