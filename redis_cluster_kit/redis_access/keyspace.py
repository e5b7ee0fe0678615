"""The one module that names keys: every kind with its type, its TTL rule and its hash tag.

`rck:{<namespace>:<partition>}:<kind>[:…]`. Shards of one partition share a Cluster slot, so one script can
touch all of them. Nothing here talks to a server.
"""

from __future__ import annotations

import re
from binascii import crc_hqx
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from shlex import quote

from redis_cluster_kit.identity import ShardId, check_name


@dataclass(frozen=True, slots=True)
class KeyKind:
    """One kind of key. `ttl` says in words when it goes; a permanent kind stays until somebody deletes it."""

    name: str
    type: str
    shape: str
    ttl: str
    purpose: str
    look: str
    """The redis-cli command that reads one."""
    permanent: bool = False

    def command(self, key: str) -> str:
        """Return the redis-cli command that reads `key`, one of this kind."""
        quoted = quote(key)  # the braces mean something to a shell
        return self.look.replace("…", quoted) if "…" in self.look else f"{self.look} {quoted}"


KINDS: tuple[KeyKind, ...] = (
    KeyKind("record", "string", "record", "none", "what is fixed at the first join, as JSON", "GET", True),
    KeyKind(
        "members", "hash", "members", "10 lease TTLs", "live runners and what each serves, as JSON", "HGETALL"
    ),
    KeyKind(
        "alive",
        "zset",
        "alive",
        "10 lease TTLs",
        "when each runner's membership ends, server milliseconds",
        "ZRANGE … 0 -1 WITHSCORES",
    ),
    KeyKind(
        "version", "string", "version", "10 lease TTLs", "grows with every change of the membership", "GET"
    ),
    KeyKind(
        "born", "string", "born", "none", "server time of the first join without a database", "GET", True
    ),
    KeyKind(
        "machines",
        "hash",
        "machines",
        "none",
        "without a database: machine id to its last reserved server millisecond and its holder",
        "HGETALL",
        True,
    ),
    KeyKind("lease", "string", "lease:<group>:<shard>", "the lease TTL", "the runner that holds it", "GET"),
    KeyKind(
        "fence",
        "hash",
        "fence:<group>:<shard>",
        "none",
        "f fence, n nonce, r runner, i inbox, e last fence that ended cleanly, w wanted types",
        "HGETALL",
        True,
    ),
    KeyKind(
        "inbox", "stream", "inbox:<runner>", "3 lease TTLs", "nudges for one runner", "XRANGE … - + COUNT 10"
    ),
    KeyKind(
        "probe", "string", "probe", "one script", "what `rck doctor` tries rights on, gone as it ends", "TYPE"
    ),
    KeyKind(
        "state",
        "hash",
        "state:<group>:<shard>:<name>",
        "none, or the singleton's state_ttl",
        "a singleton's state: f fence, v version, s schema version, b bytes, t when it was saved; "
        "ov, os, ob: what could not be decoded",
        "HGETALL",
        True,
    ),
    KeyKind(
        "singleton",
        "hash",
        "singleton:<group>:<shard>:<name>",
        "none, or the singleton's state_ttl",
        "a singleton's leader, runs, last error and heartbeat; times are server milliseconds",
        "HGETALL",
        True,
    ),
    KeyKind(
        "mailbox",
        "stream",
        "mailbox:<group>:<shard>:<type>:<id>",
        "none",
        "messages that wait or are handled, i id, m envelope; gone when the entity is passivated",
        "XRANGE … - + COUNT 10",
        True,
    ),
    KeyKind(
        "entity",
        "hash",
        "entity:<group>:<shard>:<type>:<id>",
        "none",
        "an entity's state: v version, s schema version, b bytes",
        "HGETALL",
        True,
    ),
    KeyKind(
        "active",
        "set",
        "active:<group>:<shard>",
        "none",
        "entities with something in their mailbox, as type:id",
        "SMEMBERS",
        True,
    ),
    KeyKind(
        "live",
        "hash",
        "live:<group>:<shard>",
        "none",
        "markers of messages that wait, are taken, scheduled or dead; its nameless field stays, for speed",
        "HGETALL",
        True,
    ),
    KeyKind(
        "done",
        "hash",
        "done:<group>:<shard>:<class>:<place>",
        "two windows of the class",
        "markers of handled messages with their replies, by window modulo 3",
        "HLEN",
    ),
    KeyKind(
        "scheduled",
        "zset",
        "scheduled:<group>:<shard>",
        "none",
        "messages by the server milliseconds they are due",
        "ZRANGE … 0 10 WITHSCORES",
        True,
    ),
    KeyKind(
        "later", "hash", "later:<group>:<shard>", "none", "envelopes of scheduled messages", "HKEYS", True
    ),
    KeyKind(
        "outbox",
        "stream",
        "outbox:<group>:<shard>",
        "none",
        "what the shard's entities sent and the relay has not delivered yet; stays when empty",
        "XRANGE … - + COUNT 10",
        True,
    ),
    KeyKind("dead", "hash", "dead:<group>:<shard>", "none", "dead letters", "HKEYS", True),
    KeyKind("kv", "hash", "kv", "none", "values of the key-value store whose keys fall here", "HKEYS", True),
)
_BY_NAME = {kind.name: kind for kind in KINDS}
_NAME = "[A-Za-z0-9_.-]{1,64}"
_TAG = re.compile(rf"rck:\{{{_NAME}:([0-9]{{2,5}})\}}:(([a-z]+)(?::.*)?)")
_PLACEHOLDER = re.compile("<([a-z]+)>")
_SLOTS = 16_384
_REST = {
    kind.name: re.compile(re.sub("<[a-z]+>", _NAME, kind.shape.replace("<id>", ".+")), re.DOTALL)
    for kind in KINDS
}
CLASSES = ("g", "k", "r")
"""How long a handled message is remembered: its id generated, keyed by the user, or relayed by an outbox."""


class ShardKeys:
    """The keys of one shard; made once and kept, for they are needed with every message."""

    __slots__ = (
        "_tag",
        "active",
        "dead",
        "done",
        "done_of",
        "fence",
        "later",
        "live",
        "outbox",
        "scheduled",
        "shard",
        "slot",
    )

    def __init__(self, tag: str, slot: int, shard: ShardId) -> None:
        self._tag = tag
        place = f"{shard.group}:{shard.number}"
        self.slot = slot
        self.shard = place
        self.fence = f"{tag}fence:{place}"
        self.active = f"{tag}active:{place}"
        self.live = f"{tag}live:{place}"
        self.scheduled = f"{tag}scheduled:{place}"
        self.later = f"{tag}later:{place}"
        self.outbox = f"{tag}outbox:{place}"
        self.dead = f"{tag}dead:{place}"
        self.done = {
            name: {
                f"done_{letter}": f"{tag}done:{place}:{name}:{number}" for number, letter in enumerate("abc")
            }
            for name in CLASSES
        }

        self.done_of = {name: tuple(keys.values()) for name, keys in self.done.items()}

    def mailbox(self, member: str) -> str:
        """Return the key of the mailbox of `type:id`."""
        return f"{self._tag}mailbox:{self.shard}:{member}"

    def entity(self, member: str) -> str:
        """Return the key of the state of `type:id`."""
        return f"{self._tag}entity:{self.shard}:{member}"


def kind_of(key: str | bytes) -> KeyKind | None:
    """Return what kind of key this is, None if it is none of ours."""
    text = key.decode(errors="replace") if isinstance(key, bytes) else key
    match = _TAG.fullmatch(text)
    if match is None or match[3] not in _REST or _REST[match[3]].fullmatch(match[2]) is None:
        return None
    return _BY_NAME[match[3]]


def tag_slot(tag: str) -> int:
    """Return the Cluster slot of a hash tag: CRC-16/XMODEM modulo the number of slots."""
    return crc_hqx(tag.encode(), 0) % _SLOTS


class Keyspace:
    """The keys of one namespace. Cluster-wide ones live in partition 0."""

    def __init__(self, namespace: str, partitions: int) -> None:
        self.namespace = check_name("namespace", namespace)
        self.partitions = partitions
        self._tags = [f"rck:{{{namespace}:{number:02d}}}:" for number in range(partitions)]
        self.slots = [tag_slot(f"{namespace}:{number:02d}") for number in range(partitions)]
        home = self._tags[0]
        self.record = f"{home}record"
        self.members = f"{home}members"
        self.alive = f"{home}alive"
        self.version = f"{home}version"
        self.born = f"{home}born"
        self.machines = f"{home}machines"
        self.probe = f"{home}probe"
        self.home_slot = self.slots[0]
        self._shards: dict[ShardId, ShardKeys] = {}

    def of(self, shard: ShardId) -> ShardKeys:
        """Return the keys of a shard."""
        keys = self._shards.get(shard)
        if keys is None:
            place = shard.number % self.partitions
            keys = self._shards[shard] = ShardKeys(self._tags[place], self.slots[place], shard)
        return keys

    def partition(self, shard: ShardId) -> int:
        """Return the partition of a shard."""
        return shard.number % self.partitions

    def slot(self, shard: ShardId) -> int:
        """Return the Cluster slot of a shard's keys."""
        return self.slots[shard.number % self.partitions]

    def lease(self, shard: ShardId) -> str:
        """Return the key that says who holds the shard."""
        return f"{self._tags[shard.number % self.partitions]}lease:{shard.group}:{shard.number}"

    def fence(self, shard: ShardId) -> str:
        """Return the key of the shard's installed fence."""
        return f"{self._tags[shard.number % self.partitions]}fence:{shard.group}:{shard.number}"

    def values(self, partition: int) -> str:
        """Return the key of a partition's part of the key-value store."""
        return f"{self._tags[partition]}kv"

    def inbox(self, runner_id: str, partition: int) -> str:
        """Return where a runner's nudges of one partition arrive."""
        return f"{self._tags[partition]}inbox:{runner_id}"

    def state(self, shard: ShardId, name: str) -> str:
        """Return the key of a singleton's cached state."""
        return f"{self._tags[shard.number % self.partitions]}state:{shard.group}:{shard.number}:{name}"

    def singleton(self, shard: ShardId, name: str) -> str:
        """Return the key of a singleton's metadata."""
        return f"{self._tags[shard.number % self.partitions]}singleton:{shard.group}:{shard.number}:{name}"

    def by_partition(self, shards: list[ShardId], most: int = 100) -> list[tuple[int, list[ShardId]]]:
        """Group shards into what one script may touch: one partition, at most `most` shards."""
        groups: dict[int, list[ShardId]] = {}
        for shard in sorted(shards):
            groups.setdefault(shard.number % self.partitions, []).append(shard)
        return [
            (partition, members[start : start + most])
            for partition, members in sorted(groups.items())
            for start in range(0, len(members), most)
        ]

    def example(self, kind: KeyKind, shard: ShardId, names: Mapping[str, str]) -> str:
        """Return a key of this kind with its real tag; what neither `shard` nor `names` gives stays."""
        known = {"group": shard.group, "shard": str(shard.number), **names}
        rest = _PLACEHOLDER.sub(lambda match: known.get(match[1], match[0]), kind.shape)
        return f"{self._tags[self.partition(shard) if '<shard>' in kind.shape else 0]}{rest}"

    def slot_of(self, key: str) -> int:
        """Return the Cluster slot of a key of this namespace."""
        match = _TAG.fullmatch(key)
        number = 0 if match is None else int(match[1])
        return self.slots[number] if number < self.partitions else tag_slot(f"{self.namespace}:{number:02d}")

    def pattern(self, kind: str = "") -> str:
        """Return the SCAN pattern of every key of the namespace, or of those that may be of a kind."""
        rest = f"}}:{kind}:*" if kind else ""
        return f"rck:{{{_escape(self.namespace)}:*{rest}"


@lru_cache(maxsize=1)
def reference_page() -> str:
    """Return the generated page that lists every kind."""
    lines = [
        "# Keys in Redis",
        "",
        "Generated from `redis_cluster_kit/redis_access/keyspace.py`; a test keeps both equal.",
        "",
        "Every key begins with `rck:{<namespace>:<partition>}:`; the braces are the Cluster hash tag.",
        "A shard's partition is its number modulo the number of partitions (16, or as set at first join).",
        "Cluster-wide keys live in partition `00`.",
        "",
        "| key | type | expires | holds | read it with |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{kind.shape}` | {kind.type} | {kind.ttl} | {kind.purpose} | `{kind.look}` |" for kind in KINDS
    ]
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return re.sub(r"([*?\[\]\\^-])", r"\\\1", text)
