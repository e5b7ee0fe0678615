"""Senders and owners drive the real scripts on a real server, in any order, against a model."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from redis_cluster_kit.delivery import (
    FROM_THE_START,
    DeadLetters,
    DeadRecord,
    Message,
    Parcel,
    Scheduled,
    place_of,
)
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.errors import FencedError, MailboxFullError
from redis_cluster_kit.identity import public_message_id
from redis_cluster_kit.runtime.commit import CLAIM_NOTHING, MessageGone

from .scenes import FAR, MEMBER, SHARD, Owner, Stage

T = TypeVar("T")
CAPACITY = 3
MOST_FAILURES = 3
SUSPECT = 2
ids = st.sampled_from([f"0000000000{n:02d}-1" for n in range(12)])


@dataclass(eq=False)
class Known:
    """A message in its mailbox, as the model has it."""

    id: str
    holder: int = 0
    failures: int = 0
    deaths: int = 0


class Mailbox(RuleBasedStateMachine):
    """One entity, a sender that repeats itself, and a row of owners of whom only the last one counts."""

    server: RedisServer
    seen: ClassVar[Counter[str]] = Counter()

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.stage = Stage(self.server.url, f"m-{uuid.uuid4().hex[:8]}")
        self.scheduled_of = Scheduled(self.stage.lanes, self.stage.keyspace, 10**6)
        self.letters = DeadLetters(self.stage.lanes, self.stage.keyspace, {"default": 1}, 10**6)
        self.owners: list[Owner] = []
        self.in_hand: dict[int, tuple[Message, Known]] = {}
        self.mailbox: list[Known] = []
        self.later: list[str] = []
        self.done: set[str] = set()
        self.dead: list[str] = []
        self.withdrawn: set[str] = set()
        """Cancelled or reset, and not handled since."""
        self.applied: list[str] = []
        self.forgotten: list[str] = []
        """Applied, and no longer remembered as handled."""
        self.take_over()

    def run(self, work: Awaitable[T]) -> T:
        return self.loop.run_until_complete(work)

    def count(self, word: str) -> str:
        Mailbox.seen[word] += 1
        return word

    def waiting(self, id: str) -> Known | None:
        return next((known for known in self.mailbox if known.id == id), None)

    # Senders

    def put(self, id: str, due: int | None, *, again: bool = False) -> str:
        parcel = Parcel(
            group=SHARD.group,
            number=SHARD.number,
            member=MEMBER,
            id=id,
            message=id.encode(),
            capacity=CAPACITY,
            due=due,
        )
        return self.count(self.run(self.stage.mailboxes.put(parcel, FAR, again=again)).word)

    def known_word(self, id: str) -> str | None:
        if self.waiting(id) or id in self.later:
            return "duplicate"
        return "answered" if id in self.done or id in self.dead else None

    @rule(id=ids)
    def send(self, id: str) -> None:
        expected = self.known_word(id) or ("full" if len(self.mailbox) == CAPACITY else "appended")
        assert self.put(id, None) == expected
        if expected == "appended":
            self.mailbox.append(Known(id))

    @precondition(lambda self: self.done or self.dead or self.mailbox)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        known = [*self.done, *self.dead, *(known.id for known in self.mailbox)]
        self.send(data.draw(st.sampled_from(sorted(known))))

    @precondition(lambda self: self.withdrawn)
    @rule(data=st.data(), due=st.sampled_from([None, 1]))
    def bring_back(self, data: st.DataObject, due: int | None) -> None:
        """Somebody who waits for it puts it again."""
        id = data.draw(st.sampled_from(sorted(self.withdrawn)))
        if self.known_word(id) is None:
            assert self.put(id, due, again=True) == "withdrawn"

    @rule(number=st.integers(100, 999))
    def send_something_new(self, number: int) -> None:
        self.send(f"{number:012d}-1")

    @rule(id=ids)
    def schedule(self, id: str) -> None:
        expected = self.known_word(id) or "scheduled"
        assert self.put(id, 1) == expected
        if expected == "scheduled":
            self.later.append(id)

    @rule(id=ids)
    def cancel(self, id: str) -> None:
        known = self.waiting(id)
        is_handled = known is not None or id in self.done or id in self.dead
        expected = id in self.later or (known is not None and not known.holder)
        is_withdrawn = expected
        expected = expected or (id in self.withdrawn and not is_handled)
        assert self.run(self.stage.mailboxes.cancel(SHARD, MEMBER, id)) == expected
        self.count(f"cancel {expected}")
        self.later = [other for other in self.later if other != id]
        if is_withdrawn:
            self.withdrawn.add(id)
        if known is not None and not known.holder:
            self.mailbox.remove(known)

    @rule(id=ids)
    def look_up(self, id: str) -> None:
        known = self.waiting(id)
        expected = "unknown"
        if known is not None:
            expected = "taken" if known.holder else "waiting"
        elif id in self.later:
            expected = "scheduled"
        elif id in self.done:
            expected = "answered"
        elif id in self.dead:
            expected = "dead"
        elif id in self.withdrawn:
            expected = "withdrawn"
        assert self.run(self.stage.mailboxes.lookup(SHARD, MEMBER, id)).word == expected

    # Owners

    @rule()
    def take_over(self) -> None:
        self.owners.append(self.run(self.stage.owner()))
        self.count("takeover")

    @property
    def newest(self) -> int:
        return len(self.owners)

    def note_claim(self, known: Known, *, runs_suspects: bool) -> None:
        if known.holder and known.holder != self.newest:
            known.deaths += 1
            self.count("death")
        known.holder = self.newest if runs_suspects or known.deaths < SUSPECT else 0

    @rule(back=st.integers(0, 1), runs_suspects=st.booleans())
    def claim(self, back: int, runs_suspects: bool) -> None:
        number = max(1, self.newest - back)
        owner = self.owners[number - 1]
        work = self.stage.mailboxes.claim(
            SHARD, owner.fence, MEMBER, after=FROM_THE_START, with_state=True, runs_suspects=runs_suspects
        )
        if number != self.newest:
            assert self.refused(work)
            return
        message, saved = self.run(work)
        assert saved is not None
        assert saved.version == len(self.applied)
        owner.version = saved.version
        owner.marks = list(self.applied)
        self.take_in_hand(number, message, runs_suspects=runs_suspects)

    def take_in_hand(self, number: int, message: Message | None, *, runs_suspects: bool) -> None:
        self.in_hand.pop(number, None)
        if not self.mailbox:
            assert message is None
            return
        known = self.mailbox[0]
        self.note_claim(known, runs_suspects=runs_suspects)
        assert message is not None
        assert (message.id, message.failures, message.deaths) == (known.id, known.failures, known.deaths)
        self.in_hand[number] = message, known

    def refused(self, work: Awaitable[object]) -> bool:
        try:
            self.run(work)
        except FencedError:
            self.count("fenced")
            return True
        return False

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data(), claims=st.booleans())
    def commit(self, data: st.DataObject, claims: bool) -> None:
        self.commit_of(data.draw(st.sampled_from(sorted(self.in_hand))), claims=claims)

    def commit_of(self, number: int, *, claims: bool) -> None:
        if number not in self.in_hand:
            return
        (message, known), owner = self.in_hand[number], self.owners[number - 1]
        is_there = any(known is other for other in self.mailbox)
        state = msgspec.msgpack.encode([*owner.marks, message.id])
        work = owner.commit(message, FROM_THE_START if claims else CLAIM_NOTHING)
        if number != self.newest:
            assert self.refused(work)
            return
        word = self.count("commit " + self.run(work))
        if not is_there:
            assert word == "commit lost"
            del self.in_hand[number]
            return
        assert word == "commit ok"
        assert state == msgspec.msgpack.encode([*self.applied, message.id])
        self.mailbox.remove(known)
        self.done.add(known.id)
        self.withdrawn.discard(known.id)
        self.applied.append(known.id)
        del self.in_hand[number]
        if claims and self.mailbox:
            self.note_claim(self.mailbox[0], runs_suspects=False)

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.fail_of(data.draw(st.sampled_from(sorted(self.in_hand))))

    def fail_of(self, number: int) -> None:
        (message, known), owner = self.in_hand[number], self.owners[number - 1]
        is_there = any(known is other for other in self.mailbox)
        record = msgspec.msgpack.encode(
            DeadRecord(message=message.content, reason="it failed", capacity=CAPACITY)
        )
        work = owner.committer.fail(MEMBER, message, most=MOST_FAILURES, record=record, reply=b"r")
        if number != self.newest:
            assert self.refused(work)
            return
        if not is_there:
            try:
                self.run(work)
            except MessageGone:
                del self.in_hand[number]
                return
            raise AssertionError("a failure of a message that is gone was counted")
        known.failures += 1
        known.holder = self.newest
        assert self.run(work) == (known.failures if known.failures < MOST_FAILURES else None)
        if known.failures == MOST_FAILURES:
            self.count("buried")
            self.mailbox.remove(known)
            self.dead.append(known.id)
            del self.in_hand[number]

    @rule(back=st.integers(0, 1))
    def handle(self, back: int) -> None:
        """Claim and commit, by the owner or by one who was it until now."""
        self.claim(0, runs_suspects=True)
        for _ in range(back):
            self.take_over()
        self.commit_of(self.newest - back, claims=bool(back))

    @precondition(lambda self: self.mailbox)
    @rule()
    def die_in_its_turn(self) -> None:
        self.claim(0, runs_suspects=True)
        self.take_over()
        self.claim(0, runs_suspects=False)

    @precondition(lambda self: self.mailbox)
    @rule(times=st.integers(1, MOST_FAILURES))
    def fail_again_and_again(self, times: int) -> None:
        self.claim(0, runs_suspects=True)
        for _ in range(times):
            if self.newest in self.in_hand:
                self.fail_of(self.newest)

    @rule()
    def give_back(self) -> None:
        """What a polite owner does with all that it has taken."""
        taken = [known for known in self.mailbox if known.holder == self.newest]
        fence = self.owners[-1].fence
        self.run(self.stage.mailboxes.release(SHARD, fence, [(MEMBER, known.id) for known in taken]))
        for known in taken:
            known.holder = 0
        self.in_hand.pop(self.newest, None)

    @rule()
    def promote(self) -> None:
        fence = self.owners[-1].fence
        for due in self.run(self.scheduled_of.due(SHARD, 0, 0)).messages:
            room = len(self.mailbox) < CAPACITY
            word = self.count(self.run(self.scheduled_of.promote(SHARD, fence, due)))
            assert word == ("promoted" if room else "full")
            assert due.id == self.later[0]
            if not room:
                return
            self.mailbox.append(Known(self.later.pop(0)))

    @rule()
    def passivate(self) -> None:
        gone = self.run(self.stage.mailboxes.passivate(SHARD, self.owners[-1].fence, MEMBER))
        assert gone == (not self.mailbox)

    # Operators

    @precondition(lambda self: len(self.done) > 3)
    @rule(with_state=st.booleans())
    def reset(self, with_state: bool) -> None:
        self.run(self.stage.mailboxes.reset(SHARD, MEMBER, with_state=with_state))
        self.withdrawn = {*self.later, *(known.id for known in self.mailbox)}
        self.mailbox, self.later, self.done = [], [], set()
        self.forgotten += self.applied
        self.applied = [] if with_state else self.applied

    @precondition(lambda self: self.mailbox)
    @rule(with_state=st.booleans())
    def reset_in_a_turn(self, with_state: bool) -> None:
        self.claim(0, runs_suspects=True)
        self.reset(with_state=with_state)
        self.commit_of(self.newest, claims=True)

    @precondition(lambda self: self.dead)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.dead))
        message_id = public_message_id(id, SHARD.group, *MEMBER.split(":"))
        room = len(self.mailbox) < CAPACITY
        try:
            assert self.run(self.letters.replay(message_id))
        except MailboxFullError:
            assert not room
            return
        assert room
        self.count("replayed")
        self.dead.remove(id)
        self.mailbox.append(Known(id))

    @precondition(lambda self: self.dead)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.dead))
        assert self.run(self.letters.drop(public_message_id(id, SHARD.group, *MEMBER.split(":"))))
        self.dead.remove(id)

    # What must be so after each step

    @invariant()
    def the_store_is_as_the_model(self) -> None:
        if not hasattr(self, "loop"):
            return
        keys = self.stage.keys
        server = self.server
        entries = server.call("XRANGE", keys.mailbox(MEMBER), "-", "+")
        assert isinstance(entries, list)
        assert [entry[1][1] for entry in entries] == [known.id for known in self.mailbox]  # type: ignore[index]
        assert server.call("SISMEMBER", keys.active, MEMBER) == bool(self.mailbox)
        pairs = server.call("HGETALL", keys.live)
        assert isinstance(pairs, list)
        found = {
            str(field): str(marker).split(" ") for field, marker in zip(pairs[::2], pairs[1::2], strict=True)
        }
        found.pop("\nplace", None)
        found.pop("", None)
        expected = {place_of(MEMBER, id): "s" for id in self.later}
        expected |= {place_of(MEMBER, id): "d" for id in self.dead}
        for known in self.mailbox:
            place = place_of(MEMBER, known.id)
            expected[place] = "t" if known.holder else "w"
            assert found[place][4:] == [str(known.holder), str(known.failures), str(known.deaths)]
        assert {place: marker[0] for place, marker in found.items()} == expected

    @invariant()
    def nothing_is_applied_twice(self) -> None:
        if hasattr(self, "loop"):
            assert self.run(self.stage.applied()) == self.applied
            known = [id for id in self.applied if id not in self.forgotten]
            assert len(set(known)) == len(known)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self.stage.clear())
            self.run(self.stage.lanes.close())
            self.loop.close()


def test_the_scripts_of_a_mailbox_agree_with_the_model(valkey: RedisServer) -> None:
    Mailbox.server = valkey
    Mailbox.seen = Counter()
    run_state_machine_as_test(
        Mailbox,
        settings=settings(
            max_examples=100,
            stateful_step_count=50,
            deadline=None,
            derandomize=True,  # what it saw is part of what is asserted
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(dict(Mailbox.seen))
    for word in ("appended", "duplicate", "answered", "full", "promoted", "commit ok", "fenced", "death"):
        assert Mailbox.seen[word] > 5, word
    for word in ("commit lost", "buried", "replayed", "cancel True", "cancel False", "withdrawn"):
        assert Mailbox.seen[word], word
