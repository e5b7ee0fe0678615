"""Opens the stores a command looks at: the data Redis, its lease nodes, the database.

Commands wait less than services do: whoever sits before a terminal wants to know now.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import msgspec

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.identity import check_name
from redis_cluster_kit.observe import Snapshot, read_record, take_snapshot
from redis_cluster_kit.ownership import LeaseNodes
from redis_cluster_kit.redis_access import Keyspace, Lanes, RedisUrl
from redis_cluster_kit.settings import Settings, ShortLeaseWarning
from redis_cluster_kit.storage import ClusterRecord, Database

from .commands import CannotError

_RETRY_FOR = 0.5


@dataclass(frozen=True, slots=True)
class RedisSide:
    """An open data Redis. `record` is None where nobody has ever joined."""

    url: RedisUrl
    settings: Settings
    lanes: Lanes
    keyspace: Keyspace
    record: ClusterRecord | None

    @property
    def standing(self) -> ClusterRecord:
        """The record; `CannotError` if there is none."""
        if self.record is None:
            raise CannotError(
                f"nobody has joined namespace {self.keyspace.namespace!r} at {self.url} yet; "
                "is RCK_NAMESPACE or --namespace right?"
            )
        return self.record


@dataclass(frozen=True, slots=True)
class ClusterSide(RedisSide):
    """The same with the lease nodes its record names."""

    nodes: dict[str, Lanes]
    leases: LeaseNodes

    @classmethod
    def of(cls, side: RedisSide, nodes: dict[str, Lanes]) -> ClusterSide:
        """Add the lease nodes to an open data Redis."""
        leases = LeaseNodes(list(nodes.values()), side.keyspace, "", side.settings.lease)
        return cls(side.url, side.settings, side.lanes, side.keyspace, side.standing, nodes, leases)

    async def clock(self) -> Clock:
        """Return a clock that shows the data Redis' time."""
        clock, sent = Clock(), Clock.boot()
        seconds, micros = await self.lanes.call(self.keyspace.home_slot, "TIME", repeat=True)
        clock.observe(int(seconds) + int(micros) / 1e6, sent, Clock.boot())
        return clock

    async def look(self) -> Snapshot:
        """Take a snapshot."""
        return await take_snapshot(self.lanes, self.keyspace, self.standing, self.leases)


def read_settings() -> Settings:
    """Return the settings of the environment."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShortLeaseWarning)
            return Settings.from_env()
    except (ValueError, TypeError) as error:
        raise CannotError(str(error)) from error


def parse_redis(text: str | None) -> RedisUrl:
    """Return where Redis is."""
    if not text:
        raise CannotError("where is Redis? Set RCK_REDIS or add --redis redis://host:6379/0")
    try:
        return RedisUrl.parse(text)
    except ValueError as error:
        raise CannotError(f"--redis or RCK_REDIS: {error}") from error


@asynccontextmanager
async def open_redis(redis: str | None, namespace: str) -> AsyncGenerator[RedisSide]:
    """Open the data Redis and read the record."""
    url, settings = parse_redis(redis), read_settings()
    try:
        check_name("namespace", namespace)
    except ValueError as error:
        raise CannotError(str(error)) from error
    async with Lanes(url, settings.redis, retry_for=_RETRY_FOR) as lanes:
        keyspace = Keyspace(namespace, settings.shards.partitions)
        record = await read_record(lanes, keyspace)
        if record is not None:
            keyspace = Keyspace(namespace, record.partitions)
        yield RedisSide(url, settings, lanes, keyspace, record)


@asynccontextmanager
async def open_cluster(redis: str | None, namespace: str) -> AsyncGenerator[ClusterSide]:
    """Open the data Redis and the lease nodes; `CannotError` where nobody has joined."""
    async with open_redis(redis, namespace) as side, lease_nodes(side) as nodes:
        yield ClusterSide.of(side, nodes)


@asynccontextmanager
async def lease_nodes(side: RedisSide) -> AsyncGenerator[dict[str, Lanes]]:
    """Open the lease nodes by what names them; the data Redis itself where the record names none."""
    named = _with_logins(side.standing, side.settings)
    if not named:
        yield {str(side.url): side.lanes}
        return
    async with AsyncExitStack() as stack:
        nodes: dict[str, Lanes] = {}
        for place, text in zip(side.standing.lease_nodes, named, strict=True):
            lanes = Lanes(parse_redis(text), side.settings.redis, role="lease", retry_for=_RETRY_FOR)
            nodes[place] = await stack.enter_async_context(lanes)
        yield nodes


def _with_logins(record: ClusterRecord, settings: Settings) -> tuple[str, ...]:
    """The record holds no logins: they come from RCK_LEASE_NODES, where that names the same places."""
    ours = msgspec.structs.replace(record, lease_nodes=tuple(settings.lease.nodes))
    return tuple(settings.lease.nodes) if ours.lease_nodes == record.lease_nodes else record.lease_nodes


def make_database(url: str, settings: Settings) -> Database:
    """Return a closed database; `JoinRefusedError` if the URL is none."""
    return Database(url, settings.database, ttl=settings.lease.ttl)
