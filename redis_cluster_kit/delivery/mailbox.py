"""Mailboxes: the typed callers of `lua/mailbox`, and of `turn/release`, which gives back what was claimed.

Senders append, cancel and look up from anywhere; only the shard's owner claims. What is done with a message
is not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NamedTuple

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.errors import Execution, FencedError, PersistenceFailedError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.redis_access import CLASSES, Batches, Keyspace, Lanes, Outcome, Script, ShardKeys
from redis_cluster_kit.settings import DedupeSettings, MailboxSettings

from .parcel import HeldFence, Message, Parcel, place_of, read_entry

APPEND = Script.load("mailbox/append").in_order(
    *("mailbox", "live", "active", "fence", "done_a", "done_b", "done_c"),
    *("shard", "member", "id", "message", "class", "check", "window", "again", "not_after"),
    *("capacity", "bytes_limit", "always"),
)
PUT = Script.load("scheduled/put")
CLAIM = Script.load("mailbox/claim").in_order(
    *("fence", "mailbox", "live", "active", "entity"),
    *("number", "nonce", "member", "after", "runs_suspects", "with_state"),
)
LOOKUP = Script.load("mailbox/lookup")
CANCEL = Script.load("mailbox/cancel")
RESET = Script.load("mailbox/reset")
PASSIVATE = Script.load("mailbox/passivate")
RELEASE = Script.load("turn/release")

NOTHING_OLDER = ""
FROM_THE_START = "0-0"
_MS = timedelta(milliseconds=1)
_REPLICATED_WITHIN = 5.0
_WAIT_MS = 500
_LONG = " " * 65
"""A hash with a longer value than 64 bytes is indexed; see `lua/include/markers.lua`."""


class Put(NamedTuple):
    """What became of a parcel: the outcome word of `append` or `put`, and the reply of one `answered`."""

    word: str
    reply: bytes = b""


class Lookup(NamedTuple):
    """How far a message has got: the outcome word of `lookup`, and what came with it."""

    word: str
    reply: bytes = b""
    runner_id: str = ""
    attempt: int = 0
    due: int = 0


class SavedState(NamedTuple):
    """An entity's state as it stands in Redis; version 0 without bytes: there is none yet."""

    version: int
    schema: int
    content: bytes


class MailboxParked(Exception):  # noqa: N818 - what is so, and nothing to be sorry about
    """The next message of a mailbox waits durably."""


class Mailboxes:
    """All mailboxes of a namespace."""

    def __init__(
        self,
        lanes: Lanes,
        replicating: Lanes,
        keyspace: Keyspace,
        mailbox: MailboxSettings,
        dedupe: DedupeSettings,
    ) -> None:
        self.lanes = lanes
        self._replicating = replicating
        self._appends = Batches(lanes, APPEND)
        self.keyspace = keyspace
        self._bytes_limit = mailbox.bytes_limit
        self.windows = {
            "g": dedupe.generated // _MS,
            "k": dedupe.idempotency // _MS,
            "r": dedupe.relayed // _MS,
        }
        """Milliseconds each class is remembered."""

    async def put(self, parcel: Parcel, not_after: int, *, again: bool = False) -> Put:
        """Append a parcel, or schedule it. Safe to repeat until `not_after`, in server milliseconds.

        `again`: it may have been put before; if it was withdrawn since, it stays so.
        """
        if parcel.due is not None:
            script, values = self._put_values(parcel, not_after, again=again)
            return _put(await script(self.lanes, self.keyspace.slot(parcel.shard), **values))
        keys = self.keyspace.of(parcel.shard)
        kind, member = parcel.kind, parcel.member
        return _put(
            await self._appends.call(
                keys.slot,
                (keys.mailbox(member), keys.live, keys.active, keys.fence, *keys.done_of[kind]),
                (
                    *(keys.shard, member, parcel.id, parcel.message, kind, parcel.check),
                    *(self.windows[kind], int(again), not_after, parcel.capacity, self._bytes_limit),
                    int(parcel.is_nudged_always),
                ),
                size=len(parcel.message),
            )
        )

    async def put_replicated(
        self, parcel: Parcel, not_after: int, replicas: int, *, again: bool = False
    ) -> Put:
        """The same, and return only when so many replicas have it; tried again for a while."""
        script, values = self._put_values(parcel, not_after, again=again)
        slot = self.keyspace.slot(parcel.shard)
        deadline = Clock.boot() + _REPLICATED_WITHIN
        while True:
            try:
                outcome, count = await script.call_replicated(
                    self._replicating, slot, replicas=replicas, wait_ms=_WAIT_MS, **values
                )
                if count >= replicas or outcome.word not in ("appended", "scheduled", "duplicate"):
                    return _put(outcome)
                raise PersistenceFailedError(
                    store="redis",
                    execution=Execution.UNKNOWN,
                    detail=f"it is in its mailbox, and {count} of {replicas} replicas have it",
                )
            except PersistenceFailedError as error:
                if not error.is_retryable or Clock.boot() > deadline:
                    raise
                await anyio.sleep(0.05)

    def _put_values(self, parcel: Parcel, not_after: int, *, again: bool) -> tuple[Script, dict[str, Any]]:
        keys = self.keyspace.of(parcel.shard)
        shared: dict[str, Any] = {
            "live": keys.live,
            "fence": keys.fence,
            **keys.done[parcel.kind],
            "shard": keys.shard,
            "member": parcel.member,
            "id": parcel.id,
            "message": parcel.message,
            "class": parcel.kind,
            "check": parcel.check,
            "window": self.windows[parcel.kind],
            "again": again,
            "not_after": not_after,
            "capacity": parcel.capacity,
        }
        if parcel.due is not None:
            return PUT, shared | {"scheduled": keys.scheduled, "later": keys.later, "due": parcel.due}
        shared["mailbox"] = keys.mailbox(parcel.member)
        shared["active"] = keys.active
        shared["bytes_limit"] = self._bytes_limit
        shared["always"] = parcel.is_nudged_always
        return APPEND, shared

    async def claim(
        self,
        shard: ShardId,
        fence: HeldFence,
        member: str,
        *,
        after: str,
        runs_suspects: bool = False,
        with_state: bool = False,
    ) -> tuple[Message | None, SavedState | None]:
        """Take the next message, None if there is none; `FencedError` if the shard is not ours any more.

        `MailboxParked`: the next one waits durably, and whatever is behind it waits with it.
        """
        keys = self.keyspace.of(shard)
        outcome = await CLAIM.call_in_order(
            self.lanes,
            keys.slot,
            5,
            *(keys.fence, keys.mailbox(member), keys.live, keys.active, keys.entity(member)),
            *fence,
            *(member, after, int(runs_suspects), int(with_state)),
        )
        refuse_fenced(outcome, shard, fence)
        if outcome.word == "parked":
            raise MailboxParked
        version, schema, content = outcome.fields[-3:]
        state = SavedState(int(version), int(schema), content) if with_state else None
        return read_message(outcome), state

    async def lookup(self, shard: ShardId, member: str, id: str) -> Lookup:
        """Say how far a message has got."""
        keys = self.keyspace.of(shard)
        outcome = await LOOKUP(
            self.lanes,
            keys.slot,
            live=keys.live,
            fence=keys.fence,
            member=member,
            id=id,
            each=[{**keys.done[kind], "window": self.windows[kind]} for kind in CLASSES],
        )
        fields = outcome.fields
        if outcome.word == "taken":
            return Lookup("taken", runner_id=fields[0].decode(), attempt=int(fields[1]))
        if outcome.word == "scheduled":
            return Lookup("scheduled", due=int(fields[0]))
        return Lookup(outcome.word, fields[0] if fields else b"")

    async def cancel(self, shard: ShardId, member: str, id: str) -> bool:
        """Withdraw a message nobody has taken; True: it will have no state effect."""
        keys = self.keyspace.of(shard)
        outcome = await CANCEL(
            self.lanes,
            keys.slot,
            mailbox=keys.mailbox(member),
            live=keys.live,
            active=keys.active,
            scheduled=keys.scheduled,
            later=keys.later,
            member=member,
            id=id,
            each=self._classes(keys),
        )
        return outcome.word == "cancelled"

    async def reset(self, shard: ShardId, member: str, *, with_state: bool) -> None:
        """Forget what waits or is scheduled for an entity, its replies, and its state if asked."""
        keys = self.keyspace.of(shard)
        for done in keys.done.values():
            for key in done.values():
                fields = await self._fields(keys.slot, key, member)
                if fields:
                    await self.lanes.call(keys.slot, "HDEL", key, *fields, repeat=True)
        for field in await self._fields(keys.slot, keys.later, member):
            await self.cancel(shard, member, field.rpartition("\n")[2])
        word = "more"
        while word == "more":
            word = (
                await RESET(
                    self.lanes,
                    keys.slot,
                    mailbox=keys.mailbox(member),
                    live=keys.live,
                    active=keys.active,
                    entity=keys.entity(member),
                    scheduled=keys.scheduled,
                    member=member,
                    with_state=with_state,
                    each=self._classes(keys),
                )
            ).word

    def _classes(self, keys: ShardKeys) -> list[dict[str, str | int]]:
        return [{**keys.done[kind], "kind": kind, "window": self.windows[kind]} for kind in CLASSES]

    async def passivate(self, shard: ShardId, fence: HeldFence, member: str) -> bool:
        """Remove the empty mailbox of an entity that leaves memory; False: something waits in it."""
        keys = self.keyspace.of(shard)
        outcome = await PASSIVATE(
            self.lanes,
            keys.slot,
            fence=keys.fence,
            mailbox=keys.mailbox(member),
            number=fence.number,
            nonce=fence.nonce,
        )
        refuse_fenced(outcome, shard, fence)
        return outcome.word == "gone"

    async def release(self, shard: ShardId, fence: HeldFence, taken: Iterable[tuple[str, str]]) -> None:
        """Give back messages, each as (entity, id), that were claimed and not handled."""
        keys = self.keyspace.of(shard)
        each = [{"field": place_of(member, id)} for member, id in taken]
        await RELEASE(
            self.lanes,
            keys.slot,
            fence=keys.fence,
            live=keys.live,
            number=fence.number,
            nonce=fence.nonce,
            each=each,
        )

    async def scan_active(self, shard: ShardId, cursor: str) -> tuple[str, list[str]]:
        """Return one step's worth of the entities with something in their mailbox, and the next cursor."""
        keys = self.keyspace.of(shard)
        following, members = await self.lanes.call(
            keys.slot, "SSCAN", keys.active, cursor, "COUNT", 200, repeat=True
        )
        return following.decode(), [member.decode() for member in members]

    async def count(self, shard: ShardId) -> tuple[int, int]:
        """Return how many messages of a shard wait or are handled, and how many are dead letters."""
        keys = self.keyspace.of(shard)
        live, scheduled, dead, named = await asyncio.gather(
            self.lanes.call(keys.slot, "HLEN", keys.live, repeat=True),
            self.lanes.call(keys.slot, "ZCARD", keys.scheduled, repeat=True),  # parked ones are in it, too
            self.lanes.call(keys.slot, "HLEN", keys.dead, repeat=True),
            self.lanes.call(keys.slot, "HMGET", keys.live, "\nplace", "\nparked", repeat=True),
        )
        counters = sum(value is not None for value in named)
        return max(0, live - 1 - scheduled - dead - counters), dead

    async def prepare(self, shard: ShardId) -> None:
        """Let the server index a shard's markers: its compact form of a hash is searched from the start."""
        keys = self.keyspace.of(shard)
        await self.lanes.call(keys.slot, "HSET", keys.live, "", _LONG, repeat=True)

    async def is_quiet(self, shard: ShardId) -> bool:
        """Return whether nothing of the shard waits, or is on its way out of its outbox."""
        keys = self.keyspace.of(shard)
        waiting, sent = await asyncio.gather(
            self.lanes.call(keys.slot, "SCARD", keys.active, repeat=True),
            self.lanes.call(keys.slot, "XLEN", keys.outbox, repeat=True),
        )
        return not waiting and not sent

    async def depth(self, shard: ShardId, member: str) -> int:
        """Return how many messages wait or are handled."""
        keys = self.keyspace.of(shard)
        length: int = await self.lanes.call(keys.slot, "XLEN", keys.mailbox(member), repeat=True)
        return length

    async def _fields(self, slot: int, key: str, member: str) -> list[str]:
        """Return the fields of a shard's hash that are about one entity."""
        found: list[str] = []
        cursor, pattern = "0", _escaped(member) + "\n*"
        while True:
            cursor, pairs = await self.lanes.call(
                slot, "HSCAN", key, cursor, "MATCH", pattern, "COUNT", 1000, repeat=True
            )
            found += [field.decode() for field in pairs[::2]]
            cursor = cursor.decode()
            if cursor == "0":
                return found


def _put(outcome: Outcome) -> Put:
    return Put(outcome.word, outcome.fields[0] if outcome.word == "answered" else b"")


def _escaped(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "*?[]\\^" else letter for letter in text)


def read_message(outcome: Outcome) -> Message | None:
    """Return the message an outcome `next` holds."""
    if outcome.word != "next":
        return None
    entry, id, content, kind, failures, deaths, pending = outcome.fields[:7]
    return Message(
        entry=entry.decode(),
        place=read_entry(entry),
        id=id.decode(),
        content=content,
        kind=kind.decode(),
        failures=int(failures),
        deaths=int(deaths),
        is_old=pending == b"1",
    )


def refuse_fenced(outcome: Outcome, shard: ShardId, fence: HeldFence) -> None:
    """Raise `FencedError` for the outcomes `fenced` and `unfenced`."""
    if outcome.word in ("fenced", "unfenced"):
        raise FencedError(shard=str(shard), fence=int(fence.number), store="redis", detail=outcome.word)
