"""Short scenes on the real scripts and parts, each judged by what it left behind: what mutants are shown.

Two owners, one entity, no chance: the steps are always the same. `main` plays scenes in a child, on whatever
kit is on its path, and says which invariants they found broken.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import redis.asyncio

from redis_cluster_kit import Cluster, Entity, SendTimeoutError, Settings, ShardSettings, rpc
from redis_cluster_kit.clock import Clock
from redis_cluster_kit.delivery import (
    FROM_THE_START,
    NOTHING_OLDER,
    HeldFence,
    Mailboxes,
    Message,
    OutboxItem,
    Parcel,
    Relay,
    seal_item,
)
from redis_cluster_kit.errors import FencedError, PersistenceFailedError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.redis_access import Batches, Keyspace, Lanes, RedisUrl, Script
from redis_cluster_kit.runtime import shard_host
from redis_cluster_kit.runtime.commit import CLAIM_NOTHING, COMMIT, Committer, StateWrite
from redis_cluster_kit.settings import DedupeSettings, MailboxSettings, RedisSettings
from redis_cluster_kit.testing import Proxy, Verdict, command, emit, together, until
from redis_cluster_kit.testing.checkers import (
    Effect,
    MailboxCount,
    Sent,
    bound,
    duplicates,
    exactly_once,
    send_order,
)

SHARD = ShardId("default", 0)
MEMBER = "keeper:a"
FAR = 9_000_000_000_000
OUTCOMES = {"appended": "accepted", "duplicate": "accepted", "answered": "accepted", "full": "rejected"}


class Owner:
    """One owner of the shard, as far as messages go: it claims, applies and commits."""

    def __init__(self, stage: Stage, fence: int) -> None:
        self.stage = stage
        self.fence = HeldFence(str(fence), f"nonce{fence}")
        self.committer = Committer(stage.mailboxes, Batches(stage.mailboxes.lanes, COMMIT), SHARD, self.fence)
        self.marks: list[str] = []
        self.version = 0

    async def claim(self, after: str = FROM_THE_START) -> Message | None:
        """Take the next message, and see the stored state."""
        message, saved = await self.stage.mailboxes.claim(
            SHARD, self.fence, MEMBER, after=after, with_state=True
        )
        assert saved is not None
        self.version = saved.version
        self.marks = msgspec.msgpack.decode(saved.content) if saved.version else []
        return message

    async def commit(self, message: Message, after: str = CLAIM_NOTHING) -> str:
        """Apply a message to the state as it was seen last."""
        marks = [*self.marks, message.content.decode()]
        write = StateWrite(self.version, 1, msgspec.msgpack.encode(marks))
        done = await self.committer.commit(
            MEMBER, message, b"reply", write, [], version=self.version, after=after
        )
        if done.word == "ok":
            self.version, self.marks = self.version + 1, marks
        return done.word

    async def drain(self) -> None:
        """Handle everything that is there."""
        while (message := await self.claim()) is not None:
            if await self.commit(message) != "ok":
                return


class Stage:
    """A mailbox with its shard, its senders' records and its owners."""

    def __init__(self, url: str, namespace: str) -> None:
        self.url = url
        self.lanes = Lanes(RedisUrl.parse(url), RedisSettings())
        self.keyspace = Keyspace(namespace, 1)
        self.mailboxes = Mailboxes(self.lanes, self.lanes, self.keyspace, MailboxSettings(), DedupeSettings())
        self.keys = self.keyspace.of(SHARD)
        self.sent: list[Sent] = []
        self.lengths: list[int] = []
        self.told: list[str] = []
        self._fence = 0

    async def owner(self) -> Owner:
        """Let a new owner take the shard."""
        self._fence += 1
        owner = Owner(self, self._fence)
        fields = ("f", owner.fence.number, "n", owner.fence.nonce, "r", "runner", "i", self.inbox)
        await self.lanes.call(self.keys.slot, "HSET", self.keys.fence, *fields, repeat=True)
        return owner

    @property
    def inbox(self) -> str:
        return self.keyspace.inbox("runner", 0)

    async def put(self, mark: str, *, capacity: int = 100, not_after: int = FAR) -> str:
        """Send a mark, whose id it is too."""
        parcel = Parcel(
            group=SHARD.group,
            number=SHARD.number,
            member=MEMBER,
            id=mark,
            message=mark.encode(),
            capacity=capacity,
        )
        word = (await self.mailboxes.put(parcel, not_after)).word
        self.lengths.append(await self.mailboxes.depth(SHARD, MEMBER))
        return word

    async def send(self, mark: str, *, repeats: int = 0, **options: Any) -> None:
        """Send a mark, again if asked to, and note what its sender believes after the last answer."""
        word = ""
        for _ in range(1 + repeats):
            word = await self.put(mark, **options)
        self.note(mark, OUTCOMES.get(word, "unknown"))

    def note(self, mark: str, outcome: Any) -> None:
        """What a sender believes."""
        self.told.append(outcome)
        self.sent.append(Sent(mark, "sender", "a", len(self.sent) + 1, outcome))

    async def applied(self) -> list[str]:
        content = await self.lanes.call(self.keys.slot, "HGET", self.keys.entity(MEMBER), "b", repeat=True)
        return [] if content is None else msgspec.msgpack.decode(content)

    async def judge(self, capacity: int = 100) -> Verdict:
        marks = await self.applied()
        effects = [Effect(mark, "a") for mark in marks]
        count = MailboxCount(
            "a",
            capacity,
            self.lengths,
            len(self.told),
            *(self.told.count(outcome) for outcome in ("accepted", "rejected", "unknown")),
        )
        return together(
            exactly_once(self.sent, dict.fromkeys(effects)),
            send_order(self.sent, effects),
            duplicates({"a": marks}),
            bound([count]),
        )

    async def clear(self) -> None:
        keys = await self.lanes.call(self.keys.slot, "KEYS", self.keyspace.pattern(), repeat=True)
        if keys:
            await self.lanes.call(self.keys.slot, "DEL", *keys, repeat=True)


async def a_send_repeated(stage: Stage) -> Verdict:
    """No reply came, so it is sent again: while it waits, and when it was handled."""
    owner = await stage.owner()
    await stage.send("m1", repeats=1)
    await owner.drain()
    await stage.put("m1")
    await owner.drain()
    return await stage.judge()


async def a_repeat_to_a_full_mailbox(stage: Stage) -> Verdict:
    """It is in there: `full` would make its sender believe that it is not."""
    owner = await stage.owner()
    await stage.send("m1")
    await stage.send("m2", capacity=2, repeats=1)
    await owner.drain()
    return await stage.judge()


async def a_repeat_that_comes_late(stage: Stage) -> Verdict:
    """Nobody remembers it any more: it must be refused for that."""
    owner = await stage.owner()
    stage.mailboxes.windows["g"] = 40
    not_after = int(await server_ms(stage)) + 40
    await stage.send("m1", not_after=not_after)
    await owner.drain()
    keys = stage.keys.done["g"].values()

    async def is_forgotten() -> bool:
        return not await stage.lanes.call(stage.keys.slot, "EXISTS", *keys, repeat=True)

    await until(is_forgotten, what="its marker to be forgotten")
    await stage.put("m1", not_after=not_after)
    await owner.drain()
    return await stage.judge()


async def server_ms(stage: Stage) -> int:
    seconds, micro = await stage.lanes.call(stage.keys.slot, "TIME", repeat=True)
    return int(seconds) * 1000 + int(micro) // 1000


async def a_message_withdrawn_in_its_turn(stage: Stage) -> Verdict:
    """`reset` took it away: from then on it has no effect."""
    owner = await stage.owner()
    await stage.send("m1")
    message = await owner.claim()
    assert message is not None
    await stage.mailboxes.reset(SHARD, MEMBER, with_state=False)
    stage.sent.clear()
    stage.told.clear()
    stage.note("m1", "rejected")
    await owner.commit(message)
    return await stage.judge()


async def a_state_deleted_between_turns(stage: Stage) -> Verdict:
    """What is in memory is older than what is stored: it must not come back."""
    owner = await stage.owner()
    await stage.send("m1")
    await owner.drain()
    await stage.mailboxes.reset(SHARD, MEMBER, with_state=True)
    stage.sent.clear()
    stage.told.clear()
    stage.note("m1", "rejected")
    await stage.send("m2")
    remembered = owner.marks, owner.version
    message = await owner.claim()
    assert message is not None
    owner.marks, owner.version = ["m1"], remembered[1] + 1
    await owner.commit(message)
    await owner.drain()
    return await stage.judge()


async def a_takeover_with_something_pending(stage: Stage) -> Verdict:
    """What the dead owner had in hand comes first."""
    first = await stage.owner()
    for number in range(3):
        await stage.send(f"m{number}")
    assert await first.claim() is not None
    second = await stage.owner()
    while (message := await second.claim(NOTHING_OLDER if second.version else FROM_THE_START)) is not None:
        await second.commit(message)
    await second.drain()
    return await stage.judge()


async def an_owner_that_dies_in_its_turn(stage: Stage) -> Verdict:
    """It had claimed the message and not committed it."""
    first = await stage.owner()
    await stage.send("m1")
    assert await first.claim() is not None
    await (await stage.owner()).drain()
    return await stage.judge()


async def a_flood(stage: Stage) -> Verdict:
    """More than there is room for: those that were accepted are all there."""
    owner = await stage.owner()
    for number in range(5):
        await stage.send(f"m{number}", capacity=3)
    await owner.drain()
    return await stage.judge(3)


async def a_stale_owner(stage: Stage) -> Verdict:
    """It commits after its shard was taken over."""
    first = await stage.owner()
    await stage.send("m1")
    message = await first.claim()
    assert message is not None
    second = await stage.owner()
    try:
        word = await first.commit(message)
    except FencedError:
        word = "fenced"
    await second.drain()
    verdict = await stage.judge()
    if word != "fenced":
        verdict.broken("I1", "a commit under an old fence was accepted", word)
    return verdict


async def sends_of_a_turn_to_a_full_mailbox(stage: Stage) -> Verdict:
    """The relay tries again, and keeps the order."""
    owner = await stage.owner()
    for number in range(12):
        mark = f"m{number}"
        parcel = Parcel(
            group=SHARD.group,
            number=SHARD.number,
            member=MEMBER,
            id=mark,
            message=mark.encode(),
            kind="r",
            capacity=2,
        )
        item = seal_item(OutboxItem("keeper:source", parcel))
        await stage.lanes.call(stage.keys.slot, "XADD", stage.keys.outbox, "*", "m", item)
        stage.note(mark, "accepted")
    relay = Relay(stage.mailboxes, SHARD, owner.fence, lambda: FAR)
    relaying = asyncio.create_task(relay.run())
    while len(await stage.applied()) < 12:
        await owner.drain()
        await asyncio.sleep(0.002)
    relaying.cancel()
    await asyncio.wait((relaying,))
    return await stage.judge()


async def a_failure_whose_count_was_not_heard(stage: Stage) -> Verdict:
    """It may have been counted, so it must not be counted again."""
    verdict = Verdict(examined={"lost": 0})
    owner = await stage.owner()
    await stage.send("m1")
    message = await owner.claim()
    assert message is not None
    (server,) = RedisUrl.parse(stage.url).endpoints
    async with Proxy.to(server.host, server.port) as proxy:
        lost = proxy.lose_reply(command("EVALSHA", "EVAL", sha=Script.load("turn/fail").sha))
        async with Lanes(RedisUrl.parse(proxy.url()), RedisSettings()) as lanes:
            mailboxes = Mailboxes(lanes, lanes, stage.keyspace, MailboxSettings(), DedupeSettings())
            committer = Committer(mailboxes, Batches(lanes, COMMIT), SHARD, owner.fence)
            try:
                await committer.fail(MEMBER, message, most=5, record=b"", reply=b"")
            except PersistenceFailedError:
                verdict.examined["lost"] += 1
    lost.assert_fired(1)
    again = await owner.claim()
    assert again is not None
    if again.failures != 1:
        verdict.broken("I4", f"one failure was counted {again.failures} times")
    return verdict


async def a_client_that_retries_by_itself(stage: Stage) -> Verdict:
    """What redis-py does unless it is told not to, and what our lanes do."""
    (server,) = RedisUrl.parse(stage.url).endpoints
    marks: dict[str, list[str]] = {}
    for way in ("lanes", "redis-py"):
        key = stage.keyspace.inbox(way, 0)
        async with Proxy.to(server.host, server.port) as proxy:
            lost = proxy.lose_reply(command("XADD"))
            await add_through(way, proxy.url(), stage, key)
            lost.assert_fired(1)
        entries = await stage.lanes.call(stage.keys.slot, "XRANGE", key, "-", "+", repeat=True)
        marks[way] = [fields[1].decode() for _, fields in entries]
    assert duplicates({"redis-py": marks["redis-py"]}).invariants == {"I4"}, "the control must fail"
    return duplicates({"lanes": marks["lanes"]})


async def add_through(way: str, url: str, stage: Stage, key: str) -> None:
    if way == "lanes":
        async with Lanes(RedisUrl.parse(url), RedisSettings()) as lanes:
            try:
                await lanes.call(stage.keys.slot, "XADD", key, "*", "m", "once")
            except PersistenceFailedError:
                return
        return
    (server,) = RedisUrl.parse(url).endpoints
    async with redis.asyncio.Redis(host=server.host, port=server.port) as client:  # as it comes
        await client.xadd(key, {"m": "once"})


class Listener(Entity[None], name="listener"):
    """Hears."""

    @rpc
    async def hear(self) -> int:
        return 1


async def a_nudge_that_cannot_be_used(stage: Stage) -> Verdict:
    """It was made under another fence; but something waits, and no poll comes to the rescue."""
    verdict = Verdict(examined={"nudges": 0})
    settings = Settings(
        redis=RedisSettings(assume_weak_fences=True), shards=ShardSettings(per_group=1, partitions=1)
    )
    namespace = stage.keyspace.namespace
    polls, shard_host.POLL_EVERY = shard_host.POLL_EVERY, 3600.0
    try:
        async with Cluster(stage.url, namespace=namespace, entities=[Listener], settings=settings) as cluster:
            listener = cluster.entity(Listener, "a")
            await listener.hear()
            assert cluster._runner is not None
            handlers = cluster._runner.messaging.inbox.handlers
            host, kept = handlers[b"m"], list[list[bytes]]()
            handlers[b"m"] = kept.append
            sent = await listener.hear.send()
            (fields,) = await until(lambda: kept, what="the nudge")
            fields[7] = b"1"
            host(fields)
            verdict.examined["nudges"] += 1
            try:
                await sent.result(timeout=3.0)
            except SendTimeoutError as error:
                verdict.broken("I9", f"it waits for ever: {error}")
    finally:
        shard_host.POLL_EVERY = polls
    return verdict


SCENES: dict[str, Callable[[Stage], Awaitable[Verdict]]] = {
    scene.__name__: scene
    for scene in (
        a_send_repeated,
        a_repeat_to_a_full_mailbox,
        a_repeat_that_comes_late,
        a_message_withdrawn_in_its_turn,
        a_state_deleted_between_turns,
        a_takeover_with_something_pending,
        an_owner_that_dies_in_its_turn,
        a_flood,
        a_stale_owner,
        sends_of_a_turn_to_a_full_mailbox,
        a_failure_whose_count_was_not_heard,
        a_client_that_retries_by_itself,
        a_nudge_that_cannot_be_used,
    )
}


@asynccontextmanager
async def staged(url: str, namespace: str) -> AsyncIterator[Stage]:
    stage = Stage(url, namespace)
    try:
        yield stage
    finally:
        await stage.clear()
        await stage.lanes.close()


async def play(name: str, url: str, namespace: str) -> Verdict:
    """Play one scene in a namespace of its own."""
    async with staged(url, f"{namespace}-{int(Clock.boot() * 1e6)}") as stage:
        return await asyncio.wait_for(SCENES[name](stage), 20)


async def main(options: str) -> None:
    given = json.loads(options)
    for name in given["scenes"]:
        verdict = await play(name, given["redis"], given["namespace"])
        emit("verdict", scene=name, broken=sorted(verdict.invariants), examined=verdict.examined)
