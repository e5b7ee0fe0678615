"""The end of a turn: one fenced script for everything it did, and the two ways in which a turn fails.

Outcomes become values or errors here; what an activation does about them is its own.
"""

from __future__ import annotations

from typing import NamedTuple

from redis_cluster_kit.delivery import (
    CAPACITY,
    HeldFence,
    Mailboxes,
    Message,
    read_message,
    refuse_fenced,
)
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.redis_access import Batches, Script, ShardKeys

COMMIT = Script.load("turn/commit").in_order(
    *("fence", "mailbox", "live", "active", "entity", "outbox", "done_a", "done_b", "done_c"),
    *("number", "nonce", "member", "entry", "id", "size", "claimed", "class", "window", "reply"),
    *("writes", "expected", "version", "schema", "state", "after", "most"),
)
_KEYS = 9
COMMIT_SENDING = COMMIT.refused_without_memory()
FAIL = Script.load("turn/fail")

CLAIM_NOTHING = "-"


class StateWrite(NamedTuple):
    """A changed state: from one version to the next."""

    expected: int
    schema: int
    content: bytes


class Committed(NamedTuple):
    """What came of a commit: `ok` with the next message if there is one, `lost`, or `full`."""

    word: str
    following: Message | None = None


class Committer:
    """Commits the turns of one owned shard."""

    def __init__(self, mailboxes: Mailboxes, commits: Batches, shard: ShardId, fence: HeldFence) -> None:
        self._mailboxes = mailboxes
        self._commits = commits
        self._shard = shard
        self._fence = fence
        self._keys: ShardKeys = mailboxes.keyspace.of(shard)

    async def commit(
        self,
        member: str,
        message: Message,
        reply: bytes,
        write: StateWrite | None,
        sends: list[bytes],
        *,
        version: int,
        after: str,
    ) -> Committed:
        """End a turn; `FencedError` if the shard is not ours any more. `after` as in `Mailboxes.claim`.

        `version` is the state's at the beginning: a turn that only read a state deleted since is `lost` too.
        """
        keys = self._keys
        kind = message.kind
        written = (0, version, version, 0, b"")
        if write is not None:
            written = (1, version, version + 1, write.schema, write.content)
        shared = (keys.fence, keys.mailbox(member), keys.live, keys.active, keys.entity(member), keys.outbox)
        arguments = (
            *self._fence,
            *(member, message.entry, message.id, len(message.content), int(message.is_claimed)),
            *(kind, self._mailboxes.windows[kind], reply),
            *written,
            *(after, CAPACITY),
        )
        names = (*shared, *keys.done_of[kind])
        if sends:
            outcome = await COMMIT_SENDING.call_in_order(
                self._mailboxes.lanes, keys.slot, _KEYS, *names, *arguments, *sends
            )
        else:
            outcome = await self._commits.call(
                keys.slot, names, arguments, size=len(reply) + len(written[-1])
            )
        refuse_fenced(outcome, self._shard, self._fence)
        if outcome.word in ("next", "idle", "parked"):
            return Committed("ok", read_message(outcome))
        return Committed(outcome.word)

    async def fail(
        self, member: str, message: Message, *, most: int, record: bytes, reply: bytes
    ) -> int | None:
        """Count a failure and return how many there are; None: it is a dead letter now, or was gone.

        `most` 0 buries it at once.
        """
        keys = self._keys
        outcome = await FAIL(
            self._mailboxes.lanes,
            keys.slot,
            fence=keys.fence,
            mailbox=keys.mailbox(member),
            live=keys.live,
            active=keys.active,
            dead=keys.dead,
            number=self._fence.number,
            nonce=self._fence.nonce,
            member=member,
            entry=message.entry,
            id=message.id,
            most=most,
            record=record,
            reply=reply,
        )
        refuse_fenced(outcome, self._shard, self._fence)
        if outcome.word == "failed":
            return int(outcome.fields[0])
        if outcome.word == "lost":
            raise MessageGone
        return None


class MessageGone(Exception):  # noqa: N818 - what happened, and nothing to be sorry about
    """The message was cancelled, reset, or handled by somebody else meanwhile."""
