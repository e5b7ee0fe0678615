"""What travels: a parcel on its way to a mailbox, a message in its owner's hands, and the ids of both.

Values only; who moves them is `mailbox.py` and its neighbours.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from redis_cluster_kit.identity import ShardId

NO_CHECK = "-"


class Parcel(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A message with all that is needed to put it into its mailbox. Outboxes store it: append fields only."""

    group: str
    number: int
    member: str
    """The entity, as `type:id`."""
    id: str
    message: bytes
    """The sealed envelope."""
    kind: str = "g"
    """Which window remembers it: g generated, k keyed, r relayed."""
    check: str = NO_CHECK
    """What a repeat under the same id must say too."""
    capacity: int = 100
    is_nudged_always: bool = False
    due: int | None = None
    """Server milliseconds; None: now."""

    @property
    def shard(self) -> ShardId:
        """The shard of the entity."""
        return ShardId(self.group, self.number)


class Message(msgspec.Struct, kw_only=True):
    """A message its owner has in hand."""

    entry: str
    """Its place in the mailbox."""
    place: tuple[int, int]
    """The same as numbers: server milliseconds, and a counter within them."""
    id: str
    content: bytes
    kind: str
    failures: int = 0
    deaths: int = 0
    is_old: bool = False
    """It was pending before: more of those may follow."""
    is_claimed: bool = True
    """False: it came with a nudge, and nobody has noted yet who handles it."""

    @property
    def attempt(self) -> int:
        """Which attempt this is; 1 is the first."""
        return self.failures + self.deaths + 1


class HeldFence(NamedTuple):
    """What an owner presents with every write."""

    number: str
    nonce: str


class DeadRecord(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What is kept of a dead letter. Append fields only."""

    message: bytes
    reason: str
    """Why it was buried, in words."""
    error_type: str = ""
    error_text: str = ""
    traceback: str = ""
    failures: int = 0
    deaths: int = 0
    buried_ms: int = 0
    capacity: int = 100
    runner_id: str = ""
    execution: str = ""
    """What its durable steps were recorded under."""


def read_entry(entry: bytes | str) -> tuple[int, int]:
    """Return the numbers of a stream entry's id."""
    milliseconds, number = entry.split("-" if isinstance(entry, str) else b"-")  # type: ignore[arg-type]
    return int(milliseconds), int(number)


def place_of(member: str, id: str) -> str:
    """Return the field under which a shard remembers the message; members hold no control characters."""
    return f"{member}\n{id}"


def split_place(place: str) -> tuple[str, str]:
    """Read `place_of` back."""
    member, _, id = place.rpartition("\n")
    return member, id


def keyed_id(namespace: str, member: str, key: str) -> str:
    """Return the message id that stands for an idempotency key: the same in every process."""
    digest = hashlib.blake2b(f"{namespace}\0{member}\0{key}".encode(), digest_size=14).digest()
    return f"{digest[:6].hex()}-{int.from_bytes(digest[6:]) % 10**18}"


def check_of(rpc: str, arguments: bytes) -> str:
    """Return what a repeat under the same key must be equal in: the rpc and its arguments."""
    return hashlib.blake2b(rpc.encode() + b"\0" + arguments, digest_size=8).hexdigest()
