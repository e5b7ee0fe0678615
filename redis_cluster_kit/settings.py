"""What can be set, in small frozen groups; each field says what it costs to change it.

Values are checked against each other when a group is made. `Settings.from_env()` reads them from
`RCK_<GROUP>_<FIELD>`; nothing else here looks at the outside. Durations are `timedelta`s; a plain
number is taken as seconds.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Literal, cast

from redis_cluster_kit.environment import LONGEST, read_groups
from redis_cluster_kit.errors import redact
from redis_cluster_kit.identity import check_name

_DERIVED = timedelta(microseconds=-1)
_SHORTEST_TTL = timedelta(milliseconds=500)
_SHORT_TTL = timedelta(seconds=3)


class ShortLeaseWarning(UserWarning):
    """A lease TTL under 3 s: one slow answer or garbage collection is enough to lose shards."""


class _Group:
    """Shared by the groups: a repr without secrets, and checks that name field, value and bound."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_shown(value)}" for name, value in _values(self).items())
        return f"{type(self).__name__}({shown})"

    def _complain(self, name: str, must: str) -> ValueError:
        return ValueError(f"{type(self).__name__}.{name} is {_shown(_values(self)[name])}, it must be {must}")

    def _durations(self, *names: str, least: timedelta | None = None) -> None:
        for name in names:
            value = _values(self)[name]
            if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LONGEST:
                value = timedelta(seconds=value)
                object.__setattr__(self, name, value)
            if not isinstance(value, timedelta):
                raise self._complain(name, "a timedelta, or seconds as a number")
            if value <= timedelta() or (least is not None and value < least):
                bound = "above 0 s" if least is None else f"at least {least.total_seconds():g} s"
                raise self._complain(name, bound)

    def _flags(self, *names: str) -> None:
        for name in names:
            if not isinstance(_values(self)[name], bool):
                raise self._complain(name, "True or False")

    def _whole(self, name: str, least: int, most: int) -> None:
        value = _values(self)[name]
        if type(value) is not int or not least <= value <= most:
            raise self._complain(name, f"a whole number from {least} to {most}")


def _values(group: object) -> dict[str, Any]:
    # `vars`, not `asdict`: a mapping proxy cannot be deep-copied.
    return vars(group)


def _shown(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g} s"
    if isinstance(value, MappingProxyType):
        return repr(dict(cast("Mapping[str, int]", value)))
    return repr(value) if isinstance(value, _Group) else redact(repr(value))


@dataclass(frozen=True, kw_only=True, repr=False)
class LeaseSettings(_Group):
    """How shards are leased. The same `ttl` and `nodes` belong on every runner of a cluster."""

    ttl: timedelta = timedelta(seconds=5)
    """How long a lease lasts without renewal. Longer: a killed runner's shards wait longer for a new owner.
    Shorter: more renewals, and a short pause loses shards. At least 500 ms; below 3 s warns."""
    nodes: Sequence[str] = ()
    """URLs of 1, 3 or 5 independent Redis servers that hold the leases; none: the data Redis holds them.
    Three survive the loss of one; each grant and renewal then waits for two answers. Fixed at first join."""
    look_every: timedelta = timedelta(milliseconds=250)
    """How often a runner looks for free leases to take. Longer: later takeovers. Shorter: more scripts."""
    margin: timedelta = _DERIVED
    """How much before the lease's end the owner stops by itself, beyond 1 % for drift. Default: 50 ms or
    ttl/20, whichever is less. Larger: work stops earlier when a renewal is late. Must stay below ttl/10."""

    def __post_init__(self) -> None:
        self._durations("ttl", least=_SHORTEST_TTL)
        if self.margin is _DERIVED:
            object.__setattr__(self, "margin", min(timedelta(milliseconds=50), self.ttl / 20))
        self._durations("look_every", "margin")
        if self.margin >= self.ttl / 10:
            raise self._complain("margin", f"below ttl/10 ({self.attempt_timeout.total_seconds():g} s)")
        if self.look_every > self.ttl:
            raise self._complain("look_every", f"at most the ttl ({self.ttl.total_seconds():g} s)")
        object.__setattr__(self, "nodes", _node_urls(self.nodes))
        if self.ttl < _SHORT_TTL:
            seconds = self.ttl.total_seconds()
            warnings.warn(
                f"LeaseSettings.ttl is {seconds:g} s: below 3 s a short pause is enough to lose shards",
                ShortLeaseWarning,
                stacklevel=3,
            )

    @property
    def renew_every(self) -> timedelta:
        """A third of the ttl: two renewals may fail before the lease is lost."""
        return self.ttl / 3

    @property
    def attempt_timeout(self) -> timedelta:
        """A tenth of the ttl: what one attempt to acquire or renew may take."""
        return self.ttl / 10

    @property
    def drift(self) -> timedelta:
        """One percent of the ttl: how far two clocks may drift apart while a lease lasts."""
        return self.ttl / 100


def _node_urls(nodes: Any) -> tuple[str, ...]:
    """Values are never shown here: a node URL may hold a password."""
    if not isinstance(nodes, list | tuple):
        raise TypeError("LeaseSettings.nodes must be a list of URLs")
    urls: tuple[Any, ...] = tuple(nodes)
    if len(urls) not in (0, 1, 3, 5):
        raise ValueError(
            f"LeaseSettings.nodes has {len(urls)} entries, it must be 0, 1, 3 or 5: a majority decides"
        )
    for place, url in enumerate(urls):
        if not isinstance(url, str) or "://" not in url or url.split() != [url]:
            raise ValueError(
                f"LeaseSettings.nodes[{place}] must be a URL without blanks, like redis://host:6379"
            )
    if len(set(urls)) != len(urls):
        raise ValueError("LeaseSettings.nodes names a server twice; a majority needs independent servers")
    return urls


@dataclass(frozen=True, kw_only=True, repr=False)
class ShardSettings(_Group):
    """How entities are spread. All but `weight` are fixed at the cluster's first join."""

    partitions: int = 16
    """How many hash tags the keys are spread over: several times the Redis masters there will ever be.
    More: more scripts a round for each runner. Cannot be changed later."""
    per_group: int = 100
    """Shards of a group. More: finer balance, and more leases to renew. Cannot be changed later."""
    groups: Mapping[str, int] = field(default_factory=dict[str, int])
    """Shard counts of groups that differ from `per_group`. Cannot be changed later."""
    weight: float = 1.0
    """This runner's share: 2.0 takes twice the shards of 1.0. May differ between runners and be changed."""

    def __post_init__(self) -> None:
        self._whole("partitions", 1, 16_384)
        self._whole("per_group", 1, 10_000)
        for name, count in self.groups.items():
            check_name("shard group", name)
            if type(count) is not int or not 1 <= count <= 10_000:
                raise self._complain("groups", f"counts from 1 to 10000 (group {name!r})")
        if type(self.weight) not in (int, float) or not 0.01 <= self.weight <= 100:
            raise self._complain("weight", "from 0.01 to 100")
        object.__setattr__(self, "groups", MappingProxyType(dict(self.groups)))

    def count(self, group: str) -> int:
        """Return how many shards `group` has."""
        return self.groups.get(group, self.per_group)

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self), _values(self) | {"groups": dict(self.groups)})


def _remake(kind: type[ShardSettings], values: dict[str, Any]) -> ShardSettings:
    return kind(**values)


@dataclass(frozen=True, kw_only=True, repr=False)
class RedisSettings(_Group):
    """How the data Redis is spoken to."""

    connect_timeout: timedelta = timedelta(seconds=2)
    """How long opening a connection may take. Longer: a dead server is noticed later."""
    command_timeout: timedelta = timedelta(seconds=2)
    """How long an answer may take. Shorter: a busy server counts as lost, and commands become *unknown*."""
    retry_for: timedelta = timedelta(seconds=5)
    """How long commands that surely did not run, or are idempotent, are tried again before the caller
    hears of it. Longer: short outages stay unnoticed, long ones are reported later."""
    reader_block: timedelta = timedelta(seconds=1)
    """How long a blocking reader waits on the server. Longer: fewer wake-ups, slower shutdown. It must
    stay below command_timeout."""
    eviction_check: Literal["ignore", "warn", "error"] = "error"
    """What a `maxmemory-policy` other than noeviction leads to: with eviction, fences can be forgotten."""
    tls_ca: str | None = None
    """Path of the CA certificates that `rediss://` is verified against; None: the system's."""
    tls_insecure: bool = False
    """Do not verify the server's certificate. Anyone on the path can then read and change everything."""
    allow_plaintext_password: bool = False
    """Allow a password over an unencrypted connection to another host."""
    assume_noeviction: bool = False
    """Join though the policy cannot be read (ACL without `+config|get`): then you vouch for noeviction."""
    assume_weak_fences: bool = False
    """Join without a database though Redis may lose writes: then a stale owner may commit after its crash."""

    def __post_init__(self) -> None:
        self._durations("connect_timeout", "command_timeout", "retry_for", "reader_block")
        self._flags("tls_insecure", "allow_plaintext_password", "assume_noeviction", "assume_weak_fences")
        if self.reader_block >= self.command_timeout:
            raise self._complain(
                "reader_block", f"below command_timeout ({self.command_timeout.total_seconds():g} s)"
            )
        if self.eviction_check not in ("ignore", "warn", "error"):
            raise self._complain("eviction_check", "'ignore', 'warn' or 'error'")


@dataclass(frozen=True, kw_only=True, repr=False)
class DatabaseSettings(_Group):
    """How the durable plane is spoken to."""

    create_tables: bool = True
    """Create and migrate tables when joining. False: fewer rights, and `rck migrate` is run by hand."""
    pool_size: int = 5
    """Connections a runner keeps. More: more of the server's; fewer: singletons wait for each other."""
    statement_timeout: timedelta | None = None
    """How long one statement may take; None: half the lease ttl. It must stay below the ttl, otherwise a
    stopped runner's transaction blocks its successor."""

    def __post_init__(self) -> None:
        self._flags("create_tables")
        self._whole("pool_size", 1, 1_000)
        if self.statement_timeout is not None:
            self._durations("statement_timeout")


@dataclass(frozen=True, kw_only=True, repr=False)
class MailboxSettings(_Group):
    """Bounds of what may wait for an entity."""

    capacity: int = 100
    """Messages waiting and in progress where the entity names no `mailbox_capacity`. More: later refusals,
    more memory."""
    payload_limit: int = 262_144
    """Bytes of one message, reply or declared error. More: large values hold up Redis and the lane."""
    bytes_limit: int = 8_388_608
    """Bytes that may wait in one mailbox, beside the count. At least `payload_limit`."""
    max_depth: int = 64
    """How deep arguments may nest. More: hostile input costs more stack."""

    def __post_init__(self) -> None:
        self._whole("capacity", 1, 1_000_000)
        self._whole("payload_limit", 1_024, 64 * 1024 * 1024)
        self._whole("max_depth", 4, 500)
        if type(self.bytes_limit) is not int or self.bytes_limit < self.payload_limit:
            raise self._complain(
                "bytes_limit", f"a whole number, at least payload_limit ({self.payload_limit})"
            )


@dataclass(frozen=True, kw_only=True, repr=False)
class DedupeSettings(_Group):
    """How long a handled message is remembered: 55 bytes of Redis each, kept up to two windows."""

    generated: timedelta = timedelta(seconds=60)
    """For messages with an id of the kit's own: how long a client repeats one before it raises `Unknown`."""
    idempotency: timedelta = timedelta(minutes=10)
    """For idempotency keys: how long a repeat gets the first reply again."""
    relayed: timedelta = timedelta(hours=24)
    """For messages sent inside a turn: how long their delivery may be repeated."""

    def __post_init__(self) -> None:
        self._durations("generated", "idempotency", "relayed", least=timedelta(seconds=1))


@dataclass(frozen=True, kw_only=True, repr=False)
class DrainSettings(_Group):
    """How a runner leaves."""

    budget: timedelta = timedelta(seconds=10)
    """How long turns in progress may go on. Longer than the platform's grace period: they are killed."""

    def __post_init__(self) -> None:
        self._durations("budget")


@dataclass(frozen=True, kw_only=True, repr=False)
class EntitySettings(_Group):
    """How entities live in memory, and how long their callers wait."""

    max_resident: int = 100_000
    """Entities a runner keeps in memory; above it the one idle for longest is passivated. More: more memory;
    fewer: states are loaded more often."""
    ask_timeout: timedelta = timedelta(seconds=30)
    """How long a caller waits for an answer where it names no timeout. Longer: callers of a stuck entity
    hang longer; shorter: slow handlers look like failures."""
    gc_threshold: int = 50_000
    """Objects after which Python's garbage collector looks for garbage, in a process that hosts; 0 leaves it
    as it is. More: unused cycles stay longer; fewer: with many entities in memory much time goes there."""

    def __post_init__(self) -> None:
        self._whole("max_resident", 1, 100_000_000)
        self._whole("gc_threshold", 0, 1_000_000_000)
        self._durations("ask_timeout")


@dataclass(frozen=True, kw_only=True, repr=False)
class MachineIdSettings(_Group):
    """How the machine ids of snowflakes are leased from the database."""

    lease: timedelta = timedelta(seconds=60)
    """How long an id is held without renewal. Longer: a crashed runner's id is free later (there are 1024).
    Shorter: ids stop sooner when the database is away."""

    def __post_init__(self) -> None:
        self._durations("lease", least=timedelta(seconds=5))


@dataclass(frozen=True, kw_only=True, repr=False)
class KeyValueSettings(_Group):
    """How `cluster.kv` keeps values."""

    value_limit: int = 1_048_576
    """Bytes of one value. More: a large value holds up Redis and the database for everybody else."""
    believed_for: timedelta = timedelta(seconds=30)
    """How long a runner believes Redis before it compares a value with the database again. Longer: what a
    runner that died in the middle of a write left behind is seen for longer. Shorter: more database reads."""

    def __post_init__(self) -> None:
        self._whole("value_limit", 1, 64 * 1024 * 1024)
        self._durations("believed_for")


@dataclass(frozen=True, kw_only=True, repr=False)
class DurableSettings(_Group):
    """How executions of durable steps are kept."""

    retention: timedelta = timedelta(days=7)
    """How long the journal of an execution is kept that nobody touches any more. Longer: more rows stay of
    what was cancelled, reset or lost. Shorter than an outage of the whole cluster: no harm, what still waits
    is seen and kept."""
    longest_wait: timedelta = timedelta(days=365)
    """The longest `sleep`. Longer: rows and wake-ups stay as long. A deferred waits longer than that, too."""
    result_limit: int = 262_144
    """Bytes of one step's result or deferred's value. More: every run reads the whole journal again."""
    max_attempts: int = 5
    """How often a singleton's execution with steps may raise before it is set aside. More: a broken one holds
    up the next for longer. Fewer: short outages set work aside. Messages have their entity's `retry`."""
    wake_poll: timedelta = timedelta(seconds=3)
    """How often a runner looks for deferreds whose waiters were not woken, and a waiting singleton for its
    own. Longer: a wake-up lost in a crash is made up for later. Shorter: more database reads."""

    def __post_init__(self) -> None:
        self._durations("retention", "wake_poll", least=timedelta(milliseconds=10))
        self._durations("longest_wait", least=timedelta(seconds=1))
        self._whole("result_limit", 1_024, 64 * 1024 * 1024)
        self._whole("max_attempts", 1, 1_000)


@dataclass(frozen=True, kw_only=True, repr=False)
class HealthSettings(_Group):
    """When a runner is no longer ready, or no longer alive."""

    loop_stall: timedelta = timedelta(seconds=2)
    """How long the event loop may be blocked before the runner is not ready. Longer: slow pods keep their
    traffic. Shorter: a moment without CPU is enough."""
    stall_memory: timedelta = timedelta(seconds=10)
    """How long a runner stays not ready after such a stall. Shorter than the probe's period: no probe may
    ever see it."""
    loop_dead: timedelta = timedelta(seconds=30)
    """How long the event loop may be blocked before the process counts as dead. Shorter: a long computation
    is killed in its middle. At least `loop_stall`."""
    progress: timedelta = timedelta(seconds=60)
    """How long messages may wait while nothing at all is consumed before the runner is not ready. Shorter: a
    slow store looks like a stuck runner."""

    def __post_init__(self) -> None:
        self._durations("loop_stall", "stall_memory", "progress")
        self._durations("loop_dead", least=self.loop_stall)


@dataclass(frozen=True, kw_only=True, repr=False)
class Settings(_Group):
    """Everything that can be set: `Cluster(settings=Settings(lease=LeaseSettings(ttl=…), …))`."""

    lease: LeaseSettings = field(default_factory=LeaseSettings)
    shards: ShardSettings = field(default_factory=ShardSettings)
    redis: RedisSettings = field(default_factory=RedisSettings)
    database: DatabaseSettings = field(default_factory=DatabaseSettings)
    mailbox: MailboxSettings = field(default_factory=MailboxSettings)
    dedupe: DedupeSettings = field(default_factory=DedupeSettings)
    entities: EntitySettings = field(default_factory=EntitySettings)
    drain: DrainSettings = field(default_factory=DrainSettings)
    durable: DurableSettings = field(default_factory=DurableSettings)
    key_value: KeyValueSettings = field(default_factory=KeyValueSettings)
    health: HealthSettings = field(default_factory=HealthSettings)
    machine_ids: MachineIdSettings = field(default_factory=MachineIdSettings)

    def __post_init__(self) -> None:
        timeout = self.database.statement_timeout
        if timeout is not None and timeout >= self.lease.ttl:
            raise ValueError(
                f"DatabaseSettings.statement_timeout is {timeout.total_seconds():g} s, "
                f"it must be below LeaseSettings.ttl ({self.lease.ttl.total_seconds():g} s)"
            )

    @property
    def statement_timeout(self) -> timedelta:
        """How long one SQL statement may take: as set, else half the lease ttl."""
        return self.database.statement_timeout or self.lease.ttl / 2

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, prefix: str = "RCK") -> Settings:
        """Read `RCK_<GROUP>_<FIELD>` (`RCK_LEASE_TTL=5s`, `RCK_LEASE_NODES=redis://a,redis://b,redis://c`).

        Durations: `250ms`, `5s`, `10m`, `2h`, `1d` or plain seconds; lists by comma; counts as
        `billing=50,default=100`. A misspelt variable is a ValueError that names the close match.
        """
        groups = {item.name: cast("type[Any]", item.default_factory) for item in dataclasses.fields(cls)}
        return cls(**read_groups(groups, os.environ if environ is None else environ, prefix))
