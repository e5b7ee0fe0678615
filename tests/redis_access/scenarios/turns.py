"""Scenarios of what only a shard's owner may do: claim, commit, fail, give back, promote, passivate."""

from __future__ import annotations

from redis_cluster_kit.redis_access import Keyspace

from .messages import (
    ENTRY,
    FIELD,
    ID,
    MEMBER,
    MESSAGE,
    OTHER,
    PLACE,
    WINDOW,
    keys_of,
    scheduled,
    waiting,
    with_fence,
    with_inbox,
)
from .scenario import FAR, FENCE, NEWER, NONCE, Command, Scenario, Values, install_fence

WAKE_PLACE = f"{0:0>14} {FIELD}"


def _owner(keyspace: Keyspace) -> Values:
    return {"fence": keys_of(keyspace).fence, "number": FENCE, "nonce": NONCE}


def _mailbox(keyspace: Keyspace) -> Values:
    keys = keys_of(keyspace)
    return {
        "mailbox": keys.mailbox(MEMBER),
        "live": keys.live,
        "active": keys.active,
        "member": MEMBER,
    }


def _taken(keyspace: Keyspace, marker: str = f"t g - {ENTRY} {FENCE} 0 0") -> tuple[Command, ...]:
    """One message in the owner's hands."""
    read = ("XREADGROUP", "GROUP", "owner", "owner", "STREAMS", keys_of(keyspace).mailbox(MEMBER), ">")
    return *waiting(keyspace, marker), read


def parked(keyspace: Keyspace) -> tuple[Command, ...]:
    """One message that waits durably."""
    keys = keys_of(keyspace)
    return (
        *_taken(keyspace, f"p g - {ENTRY} 0 1 1"),
        ("ZADD", keys.scheduled, FAR, WAKE_PLACE),
        ("HSET", keys.live, "\nparked", 1),
    )


def _another(keyspace: Keyspace, marker: str = "w g - 5-2 0 0 0") -> tuple[Command, ...]:
    keys = keys_of(keyspace)
    return (
        ("XADD", keys.mailbox(MEMBER), "5-2", "i", OTHER, "m", MESSAGE),
        ("HSET", keys.live, f"{MEMBER}\n{OTHER}", marker),
    )


def claim_scenarios(keyspace: Keyspace) -> list[Scenario]:
    keys, fenced = keys_of(keyspace), with_fence(keyspace)
    call = _owner(keyspace) | _mailbox(keyspace)
    call |= {"entity": keys.entity(MEMBER), "after": "0-0", "runs_suspects": False, "with_state": True}

    def claim(word: str, *setup: Command, **values: object) -> Scenario:
        return Scenario(script="mailbox/claim", word=word, setup=setup, values=call | values)

    state: Command = ("HSET", keys.entity(MEMBER), "v", 1, "s", 1, "b", b"\x00\xff")
    gone: Command = ("XDEL", keys.mailbox(MEMBER), ENTRY)
    died = f"t g - {ENTRY} 7 0 1"
    return [
        claim("next", fenced, *waiting(keyspace), state),
        claim("next", fenced, *_taken(keyspace)),
        claim("next", fenced, *_taken(keyspace, died)),
        claim("next", fenced, *_taken(keyspace, died), runs_suspects=True),
        claim("next", fenced, *_taken(keyspace), *_another(keyspace), gone),
        claim("next", fenced, *_taken(keyspace), *_another(keyspace), after=""),
        claim("next", fenced, *_taken(keyspace), *_another(keyspace), after=ENTRY, with_state=False),
        claim("next", fenced, *waiting(keyspace)[:-1]),  # its marker was forgotten
        claim("parked", fenced, *parked(keyspace)),
        claim("idle", fenced, ("SADD", keys.active, MEMBER)),
        claim("idle", fenced, *_taken(keyspace), gone),
        claim("fenced", install_fence(keys.fence, NEWER), *waiting(keyspace)),
        claim("unfenced", *waiting(keyspace)),
    ]


def commit_scenarios(keyspace: Keyspace) -> list[Scenario]:
    keys, fenced = keys_of(keyspace), with_fence(keyspace)
    call = _owner(keyspace) | _mailbox(keyspace) | keys.done["g"]
    call |= {"entity": keys.entity(MEMBER), "outbox": keys.outbox, "entry": ENTRY, "id": ID, "class": "g"}
    call |= {"window": WINDOW, "reply": b"\x00reply", "writes": True, "expected": "0", "version": "1"}
    call |= {"schema": 1, "state": b"\x00\xff", "after": "", "most": 10}
    call |= {"size": len(MESSAGE), "claimed": True}
    items: tuple[Values, ...] = ({"item": b"\x00first"}, {"item": b"second"})

    def commit(word: str, *setup: Command, each: tuple[Values, ...] = (), **values: object) -> Scenario:
        return Scenario(script="turn/commit", word=word, setup=setup, values=call | values, each=each)

    state: Command = ("HSET", keys.entity(MEMBER), "v", 8, "s", 1, "b", "x")
    sent: Command = ("XADD", keys.outbox, "1-1", "m", "x")
    return [
        commit("idle", fenced, *_taken(keyspace)),
        commit("idle", fenced, *_taken(keyspace), *_another(keyspace), after="-"),
        commit("idle", fenced, *_taken(keyspace), state, expected="8", writes=False),
        commit("idle", fenced, *_taken(keyspace), state, expected="8", version="9", each=items),
        commit("idle", fenced, *waiting(keyspace), claimed=False),
        commit("next", fenced, *_taken(keyspace), *_another(keyspace)),
        commit("parked", fenced, *_taken(keyspace), *_another(keyspace, "p g - 5-2 0 0 0")),
        commit("lost", fenced, *parked(keyspace)),
        commit("lost", fenced),
        commit("lost", fenced, *_taken(keyspace), id=OTHER),
        commit("lost", fenced, *_taken(keyspace), entry="5-2"),
        commit("lost", fenced, *waiting(keyspace)[:-1]),  # its marker was forgotten
        commit("lost", fenced, *scheduled(keyspace)),
        commit("lost", fenced, *_taken(keyspace), state),
        commit("lost", fenced, *_taken(keyspace), state, expected="7"),
        commit("lost", fenced, *_taken(keyspace), expected="8", writes=False),
        commit("full", fenced, *_taken(keyspace), sent, each=items, most=2),
        commit("fenced", install_fence(keys.fence, NEWER), *_taken(keyspace)),
        commit("unfenced", *_taken(keyspace)),
    ]


def ending_scenarios(keyspace: Keyspace) -> list[Scenario]:
    keys, fenced = keys_of(keyspace), with_fence(keyspace)
    failing = _owner(keyspace) | _mailbox(keyspace)
    failing |= {"dead": keys.dead, "entry": ENTRY, "id": ID, "most": 5, "record": b"\x00r", "reply": b"\x00a"}
    giving = _owner(keyspace) | {"live": keys.live}

    def fail(word: str, *setup: Command, **values: object) -> Scenario:
        return Scenario(script="turn/fail", word=word, setup=setup, values=failing | values)

    def release(word: str, *setup: Command, each_words: tuple[str, ...] = ()) -> Scenario:
        each = ({"field": FIELD}, {"field": f"{MEMBER}\n{OTHER}"})
        return Scenario(
            script="turn/release", word=word, setup=setup, values=giving, each=each, each_words=each_words
        )

    last = _taken(keyspace, f"t g - {ENTRY} {FENCE} 4 2")
    return [
        fail("failed", fenced, *_taken(keyspace)),
        fail("failed", fenced, *waiting(keyspace)[:-1]),  # its marker was forgotten
        fail("buried", fenced, *last),
        fail("buried", fenced, *_taken(keyspace), most=0),
        fail("lost", fenced),
        fail("lost", fenced, *_taken(keyspace), id=OTHER),
        fail("fenced", install_fence(keys.fence, NEWER), *_taken(keyspace)),
        fail("unfenced", *_taken(keyspace)),
        release("ok", fenced, *_taken(keyspace), *_another(keyspace), each_words=("released", "absent")),
        release("ok", fenced, *_taken(keyspace, f"t g - {ENTRY} 7 0 0"), each_words=("absent", "absent")),
        release("fenced", install_fence(keys.fence, NEWER), *_taken(keyspace)),
        release("unfenced", *_taken(keyspace)),
    ]


def owner_scenarios(keyspace: Keyspace) -> list[Scenario]:
    keys, fenced = keys_of(keyspace), with_fence(keyspace)
    schedule: Values = {"scheduled": keys.scheduled, "later": keys.later}
    moving = _owner(keyspace) | _mailbox(keyspace) | schedule
    moving |= {"place": PLACE, "id": ID, "message": MESSAGE, "capacity": 1, "bytes_limit": 10_000}
    relaying = _owner(keyspace) | {"outbox": keys.outbox}
    leaving = _owner(keyspace) | {"mailbox": keys.mailbox(MEMBER)}
    looking = schedule | {"offset": 0, "skip": 0, "most": 10}

    def promote(word: str, *setup: Command) -> Scenario:
        return Scenario(script="scheduled/promote", word=word, setup=setup, values=moving)

    def passivate(word: str, *setup: Command) -> Scenario:
        return Scenario(script="mailbox/passivate", word=word, setup=setup, values=leaving)

    def remove(word: str, *setup: Command) -> Scenario:
        each = ({"entry": "1-1"}, {"entry": "7-7"})
        return Scenario(script="outbox/remove", word=word, setup=setup, values=relaying, each=each)

    other = tuple(command for command in waiting(keyspace) if command[0] != "HSET")
    empty: Command = ("XGROUP", "CREATE", keys.mailbox(MEMBER), "owner", "0", "MKSTREAM")
    sent: Command = ("XADD", keys.outbox, "1-1", "m", "x")
    newer = install_fence(keys.fence, NEWER)
    return [
        Scenario(script="scheduled/due", word="ok", values=looking),
        Scenario(script="scheduled/due", word="ok", setup=scheduled(keyspace), values=looking),
        Scenario(script="scheduled/due", word="ok", setup=scheduled(keyspace, FAR), values=looking),
        promote("promoted", fenced, *scheduled(keyspace)),
        promote("absent", fenced),
        promote("absent", fenced, *waiting(keyspace)),
        promote("full", fenced, *scheduled(keyspace), *other),
        promote("fenced", newer, *scheduled(keyspace)),
        promote("unfenced", *scheduled(keyspace)),
        passivate("gone", fenced, empty),
        passivate("busy", fenced, *waiting(keyspace)),
        passivate("fenced", newer, empty),
        passivate("unfenced", empty),
        remove("removed", fenced, sent),
        remove("fenced", newer, sent),
        remove("unfenced", sent),
    ]


def parking_scenarios(keyspace: Keyspace) -> list[Scenario]:
    keys, fenced = keys_of(keyspace), with_fence(keyspace)
    shared: Values = {"live": keys.live, "active": keys.active, "scheduled": keys.scheduled, "member": MEMBER}
    parking = _owner(keyspace) | shared | {"entry": ENTRY, "id": ID, "due": FAR}
    waking = shared | {"fence": keys.fence, "shard": keys.shard, "id": ID}
    telling: Values = {"fence": keys.fence, "shard": keys.shard, "subject": "s:singleton"}

    def park(word: str, *setup: Command, **values: object) -> Scenario:
        return Scenario(script="turn/park", word=word, setup=setup, values=parking | values)

    def wake(word: str, *setup: Command) -> Scenario:
        return Scenario(script="turn/wake", word=word, setup=setup, values=waking)

    def tell(word: str, *setup: Command) -> Scenario:
        return Scenario(script="fence/nudge", word=word, setup=setup, values=telling)

    return [
        park("parked", fenced, *_taken(keyspace)),
        park("parked", fenced, *parked(keyspace)),
        park("lost", fenced),
        park("lost", fenced, *waiting(keyspace)),
        park("lost", fenced, *_taken(keyspace, f"t g - {ENTRY} 7 0 0")),
        park("lost", fenced, *_taken(keyspace), entry="5-2"),
        park("fenced", install_fence(keys.fence, NEWER), *_taken(keyspace)),
        park("unfenced", *_taken(keyspace)),
        wake("woken", fenced, *parked(keyspace)),
        wake("woken", *with_inbox(keyspace), *parked(keyspace)),
        wake("woken", *parked(keyspace)),
        wake("taken", *with_inbox(keyspace), *_taken(keyspace)),
        wake("absent", fenced),
        wake("absent", fenced, *waiting(keyspace)),
        tell("told", *with_inbox(keyspace)),
        tell("absent", fenced),
        tell("absent"),
    ]
