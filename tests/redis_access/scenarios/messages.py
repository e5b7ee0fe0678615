"""Scenarios of what any process may do to a message: append, schedule, look up, cancel, reset, replay."""

from __future__ import annotations

from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.redis_access import CLASSES, Keyspace, ShardKeys

from .scenario import FAR, TTL, Command, Scenario, Values, install_fence

SHARD = ShardId("default", 1)
MEMBER = "Account:al %1 [i]ce* é 漢"  # what an id may hold at its worst
ID, OTHER = "0123456789ab-1", "0123456789ab-2"
FIELD = f"{MEMBER}\n{ID}"
MESSAGE = b"\x01\x00\xff\n"
ENTRY = "5-1"
PLACE = f"{'1':0>14} {FIELD}"
WINDOW = 60_000


def keys_of(keyspace: Keyspace) -> ShardKeys:
    return keyspace.of(SHARD)


def with_fence(keyspace: Keyspace) -> Command:
    return install_fence(keyspace.fence(SHARD), inbox=keyspace.inbox("me", 0))


def with_inbox(keyspace: Keyspace) -> tuple[Command, ...]:
    inbox = keyspace.inbox("me", 0)
    return with_fence(keyspace), ("XADD", inbox, "1-1", "k", "free"), ("PEXPIRE", inbox, TTL)


def waiting(keyspace: Keyspace, marker: str = f"w g - {ENTRY} 0 0 0") -> tuple[Command, ...]:
    """One message in the mailbox, with this marker."""
    keys = keys_of(keyspace)
    return (
        ("XGROUP", "CREATE", keys.mailbox(MEMBER), "owner", "0", "MKSTREAM"),
        ("XADD", keys.mailbox(MEMBER), ENTRY, "i", ID, "m", MESSAGE),
        ("SADD", keys.active, MEMBER),
        ("HSET", keys.live, FIELD, marker),
    )


def scheduled(keyspace: Keyspace, due: int = 1) -> tuple[Command, ...]:
    keys = keys_of(keyspace)
    return (
        ("ZADD", keys.scheduled, due, PLACE),
        ("HSET", keys.later, FIELD, b"100 " + MESSAGE),
        ("HSET", keys.live, FIELD, f"s g - {due} {PLACE}"),
    )


def finished(keyspace: Keyspace) -> tuple[Command, ...]:
    """One message whose reply is remembered, whatever the time is."""
    keys = keys_of(keyspace).done["g"].values()
    return tuple(
        command
        for key in keys
        for command in (("HSET", key, FIELD, b"f g - \x00the reply"), ("PEXPIRE", key, TTL))
    )


def withdrawn(keyspace: Keyspace) -> tuple[Command, ...]:
    """One message that was cancelled."""
    keys = keys_of(keyspace).done["g"].values()
    return tuple(
        command for key in keys for command in (("HSET", key, FIELD, "x g - "), ("PEXPIRE", key, TTL))
    )


def buried(keyspace: Keyspace) -> tuple[Command, ...]:
    keys = keys_of(keyspace)
    return ("HSET", keys.dead, FIELD, "record"), ("HSET", keys.live, FIELD, "d g - the reply")


def _call(keyspace: Keyspace) -> Values:
    keys = keys_of(keyspace)
    return {
        "live": keys.live,
        "fence": keys.fence,
        "shard": keys.shard,
        "member": MEMBER,
        "id": ID,
        "message": MESSAGE,
        "capacity": 2,
    }


def _put(keyspace: Keyspace) -> Values:
    window: Values = {"class": "g", "check": "-", "window": WINDOW, "again": False, "not_after": 0}
    return _call(keyspace) | window | keys_of(keyspace).done["g"]


def append_scenarios(keyspace: Keyspace) -> list[Scenario]:
    keys = keys_of(keyspace)
    call = _put(keyspace) | {
        "mailbox": keys.mailbox(MEMBER),
        "active": keys.active,
        "bytes_limit": 10_000,
        "always": False,
    }

    def append(word: str, *setup: Command, **values: object) -> Scenario:
        return Scenario(script="mailbox/append", word=word, setup=setup, values=call | values)

    large = b"x" * 6_000
    return [
        append("appended"),
        append("appended", *with_inbox(keyspace)),
        append("appended", *with_inbox(keyspace), message=large),
        append("appended", *with_inbox(keyspace), *waiting(keyspace), id=OTHER, always=True),
        append("appended", not_after=FAR),
        append("answered", *finished(keyspace)),
        append("answered", *buried(keyspace)),
        append("answered", *finished(keyspace), not_after=1),
        append("duplicate", *waiting(keyspace)),
        append("duplicate", *waiting(keyspace), capacity=1, not_after=1),
        append("duplicate", *scheduled(keyspace)),
        append("conflict", *waiting(keyspace), check="0123456789abcdef"),
        append("conflict", *finished(keyspace), check="0123456789abcdef"),
        append("withdrawn", *withdrawn(keyspace), again=True),
        append("appended", *withdrawn(keyspace)),
        append("late", not_after=1),
        append("full", *waiting(keyspace), id=OTHER, capacity=1),
        append("full", ("HSET", keys.live, f"{MEMBER}\n", 6_000), message=large),
    ]


def schedule_scenarios(keyspace: Keyspace) -> list[Scenario]:
    keys = keys_of(keyspace)
    call = _put(keyspace) | {"scheduled": keys.scheduled, "later": keys.later, "due": FAR}

    def put(word: str, *setup: Command, **values: object) -> Scenario:
        return Scenario(script="scheduled/put", word=word, setup=setup, values=call | values)

    return [
        put("scheduled"),
        put("scheduled", *with_inbox(keyspace)),
        put("scheduled", *with_inbox(keyspace), *scheduled(keyspace), id=OTHER),
        put("answered", *finished(keyspace)),
        put("duplicate", *waiting(keyspace)),
        put("duplicate", *scheduled(keyspace)),
        put("conflict", *scheduled(keyspace), check="0123456789abcdef"),
        put("withdrawn", *withdrawn(keyspace), again=True),
        put("scheduled", *withdrawn(keyspace)),
        put("late", not_after=1),
    ]


def sender_scenarios(keyspace: Keyspace) -> list[Scenario]:
    keys = keys_of(keyspace)
    own: Values = {"live": keys.live, "member": MEMBER, "id": ID}
    mailbox: Values = {"mailbox": keys.mailbox(MEMBER), "active": keys.active}
    schedule: Values = {"scheduled": keys.scheduled, "later": keys.later}
    windows = tuple({**keys.done[name], "window": WINDOW} for name in CLASSES)

    def lookup(word: str, *setup: Command) -> Scenario:
        values = own | {"fence": keys.fence}
        return Scenario(script="mailbox/lookup", word=word, setup=setup, values=values, each=windows)

    classes = tuple({**keys.done[name], "kind": name, "window": WINDOW} for name in CLASSES)

    def cancel(word: str, *setup: Command) -> Scenario:
        return Scenario(
            script="mailbox/cancel", word=word, setup=setup, values=own | mailbox | schedule, each=classes
        )

    def reset(word: str, *setup: Command, with_state: bool = True) -> Scenario:
        values = mailbox | {"live": keys.live, "entity": keys.entity(MEMBER), "member": MEMBER}
        values["scheduled"] = keys.scheduled
        return Scenario(
            script="mailbox/reset",
            word=word,
            setup=setup,
            values=values | {"with_state": with_state},
            each=classes,
        )

    state: Command = ("HSET", keys.entity(MEMBER), "v", 1, "s", 1, "b", "x")
    many = tuple(("XADD", keys.mailbox(MEMBER), f"6-{n}", "i", f"{ID}{n}", "m", "x") for n in range(1, 101))
    taken = waiting(keyspace, f"t g - {ENTRY} 7 2 1")
    wake_up: Command = ("ZADD", keys.scheduled, FAR, f"{0:0>14} {FIELD}")
    parked = (*waiting(keyspace, f"p g - {ENTRY} 0 2 1"), wake_up, ("HSET", keys.live, "\nparked", 1))
    return [
        lookup("unknown"),
        lookup("waiting", *waiting(keyspace)),
        lookup("parked", *parked),
        lookup("scheduled", *scheduled(keyspace, FAR)),
        lookup("taken", *taken, with_fence(keyspace)),
        lookup("taken", *taken),
        lookup("answered", *finished(keyspace)),
        lookup("dead", *buried(keyspace)),
        lookup("withdrawn", *withdrawn(keyspace)),
        cancel("cancelled", *waiting(keyspace)),
        cancel("cancelled", *scheduled(keyspace)),
        cancel("cancelled", *parked),
        cancel("late", *taken),
        cancel("late", *buried(keyspace)),
        cancel("absent"),
        cancel("late", *finished(keyspace)),
        cancel("cancelled", *withdrawn(keyspace)),
        reset("done", *parked),
        reset("done", state),
        reset("done", *taken, state, with_state=False),
        reset("more", *waiting(keyspace), *many),
    ]


def dead_letter_scenarios(keyspace: Keyspace) -> list[Scenario]:
    keys = keys_of(keyspace)
    own: Values = {"dead": keys.dead, "live": keys.live, "member": MEMBER, "id": ID}
    call = _call(keyspace) | own | {"mailbox": keys.mailbox(MEMBER), "active": keys.active}

    def replay(word: str, *setup: Command, **values: object) -> Scenario:
        return Scenario(
            script="dead_letter/replay",
            word=word,
            setup=setup,
            values=call | {"bytes_limit": 10_000} | values,
        )

    other = tuple(command for command in waiting(keyspace) if command[0] != "HSET")
    return [
        Scenario(script="dead_letter/drop", word="dropped", setup=buried(keyspace), values=own),
        Scenario(script="dead_letter/drop", word="absent", setup=waiting(keyspace), values=own),
        replay("replayed", *buried(keyspace)),
        replay("replayed", *buried(keyspace), *with_inbox(keyspace)),
        replay("replayed", buried(keyspace)[0]),
        replay("absent", *waiting(keyspace)),
        replay("full", *buried(keyspace), *other, capacity=1),
    ]
