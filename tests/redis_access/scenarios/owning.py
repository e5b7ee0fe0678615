"""Scenarios of the scripts that are about owning shards: leases, fences, members, machine ids, the record."""

from __future__ import annotations

from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.redis_access import Keyspace

from .scenario import FAR, FENCE, NEWER, OLD, TTL, Command, Scenario, Values, install_fence


def lease_scenarios(keyspace: Keyspace) -> list[Scenario]:
    mine, theirs, free = (keyspace.lease(ShardId("default", number)) for number in range(3))
    setup = (("SET", mine, "me", "PX", TTL), ("SET", theirs, "you", "PX", TTL))
    leases = ({"lease": mine}, {"lease": theirs}, {"lease": free})
    own: Values = {"runner": "me"}
    timed: Values = {"runner": "me", "ttl": TTL * 2}
    table: list[tuple[str, Values, tuple[str, str, str]]] = [
        ("lease/acquire", timed, ("taken", "held", "taken")),
        ("lease/renew", timed, ("renewed", "lost", "lost")),
        ("lease/release", own, ("released", "absent", "absent")),
        ("lease/owners", {}, ("held", "held", "free")),
    ]
    return [
        Scenario(script=script, word="ok", each_words=words, setup=setup, values=values, each=leases)
        for script, values, words in table
    ]


def fence_scenarios(keyspace: Keyspace) -> list[Scenario]:
    held, stale, stolen, bare = (keyspace.fence(ShardId("default", number)) for number in range(4))
    setup = (install_fence(held), install_fence(stale, NEWER), install_fence(stolen, nonce="other"))
    each = tuple({"fence": fence, "number": FENCE} for fence in (held, stale, stolen, bare))
    words = ("ok", "fenced", "fenced", "unfenced")
    group = [
        Scenario(script=script, word="ok", each_words=words, setup=setup, values={"nonce": "mine"}, each=each)
        for script in ("fence/check", "fence/close")
    ]
    wants = [
        Scenario(
            script="fence/want",
            word=word,
            setup=setup,
            values={"fence": fence, "number": FENCE, "nonce": "mine", "wants": "Account=1"},
        )
        for fence, word in zip((held, stale, stolen, bare), words, strict=True)
    ]
    survey = Scenario(
        script="fence/survey",
        word="ok",
        each_words=("installed", "bare"),
        setup=setup,
        each=({"fence": held}, {"fence": bare}),
    )
    return [*group, *wants, survey]


def granting_scenarios(keyspace: Keyspace) -> list[Scenario]:
    shards = [ShardId("default", number) for number in range(6)]
    fences = [keyspace.fence(shard) for shard in shards]
    leases = [keyspace.lease(shard) for shard in shards]
    setup = (
        *(("SET", lease, "me", "PX", TTL) for lease in leases[:5]),
        ("SET", leases[5], "you", "PX", TTL),
        install_fence(fences[1], OLD, "other"),
        install_fence(fences[2], FENCE, "mine"),
        install_fence(fences[3], FENCE, "other"),
        install_fence(fences[4], NEWER, "mine"),
    )
    values: Values = {"runner": "me", "nonce": "mine", "inbox": "inbox"}
    grow = tuple({"lease": lease, "fence": fence} for lease, fence in zip(leases, fences, strict=True))
    install = tuple(pair | {"number": FENCE} for pair in grow)
    installed = ("installed", "installed", "installed", "behind", "behind")
    return [
        Scenario(
            script="fence/install",
            word="ok",
            each_words=(*installed, "lost" if colocated else "installed"),
            setup=setup,
            values=values | {"colocated": colocated},
            each=install,
        )
        for colocated in (True, False)
    ] + [
        Scenario(
            script="fence/grow",
            word="ok",
            each_words=(*("installed",) * 5, "lost" if colocated else "installed"),
            setup=setup,
            values=values | {"colocated": colocated},
            each=grow,
        )
        for colocated in (True, False)
    ]


def membership_scenarios(keyspace: Keyspace) -> list[Scenario]:
    keys: Values = {"members": keyspace.members, "alive": keyspace.alive, "version": keyspace.version}
    setup = (
        ("HSET", keyspace.members, "me", "{}", "you", "{}"),
        ("ZADD", keyspace.alive, FAR, "me", FAR, "you"),
        ("SET", keyspace.version, "7", "PX", TTL),
        ("PEXPIRE", keyspace.members, TTL),
        ("PEXPIRE", keyspace.alive, TTL),
    )
    beat = keys | {"ttl": TTL, "extend": True, "known": "7"}
    heartbeat, leave = "membership/heartbeat", "membership/leave"
    return [
        Scenario(
            script="membership/join",
            word="joined",
            values=keys | {"runner": "me", "description": b"{}", "ttl": TTL},
        ),
        Scenario(script=heartbeat, word="same", setup=setup, values=beat | {"runner": "me"}),
        Scenario(script=heartbeat, word="changed", setup=setup, values=beat | {"runner": "me", "known": "6"}),
        Scenario(script=heartbeat, word="absent", setup=setup, values=beat | {"runner": "stranger"}),
        Scenario(script=leave, word="left", setup=setup, values=keys | {"runner": "me"}),
        Scenario(script=leave, word="absent", setup=setup, values=keys | {"runner": "stranger"}),
    ]


def state_scenarios(keyspace: Keyspace) -> list[Scenario]:
    shard = ShardId("default", 1)
    fence, state = keyspace.fence(shard), keyspace.state(shard, "coordinator")

    def write(word: str, *setup: Command) -> Scenario:
        values: Values = {
            "fence": fence,
            "state": state,
            "number": FENCE,
            "nonce": "mine",
            "version": "10",
            "schema": 1,
            "content": b"\x00\xff",
            "age": 0,
            "keep": 0,
        }
        return Scenario(script="state/write", word=word, setup=setup, values=values)

    def cached(number: str, version: str) -> Command:
        return ("HSET", state, "f", number, "v", version, "s", 1, "b", "old")

    return [
        write("ok", install_fence(fence)),
        write("ok", install_fence(fence), cached(FENCE, "9")),  # by number, not by text
        write("ok", install_fence(fence), cached(OLD, "11")),  # the fence decides before the version
        write("stale", install_fence(fence), cached(FENCE, "10")),
        write("stale", install_fence(fence), cached(FENCE, "11")),
        write("stale", install_fence(fence), cached(NEWER, "1")),
        write("fenced", install_fence(fence, NEWER), cached(OLD, "1")),
        write("fenced", install_fence(fence, FENCE, "other")),
        write("unfenced", cached(OLD, "1")),
        *_singleton_scenarios(keyspace),
    ]


def _singleton_scenarios(keyspace: Keyspace) -> list[Scenario]:
    shard = ShardId("default", 1)
    fence, state = keyspace.fence(shard), keyspace.state(shard, "coordinator")
    owner: Values = {"fence": fence, "state": state, "number": FENCE, "nonce": "mine"}
    note = owner | {
        "singleton": keyspace.singleton(shard, "coordinator"),
        "runner": "me",
        "since": "1",
        "last_run": "",
        "run_count": "0",
        "last_error": "",
        "failed_at": "",
        "heartbeat": "2",
        "keep": TTL,
    }
    here: Command = ("HSET", state, "f", OLD, "v", "3", "s", 1, "b", "old")
    fences = {"ok": (install_fence(fence),), "fenced": (install_fence(fence, NEWER),), "unfenced": ()}
    return [
        Scenario(script=script, word=word, setup=(*setup, here), values=values)
        for script, values in (("singleton/note", note), ("state/aside", owner | {"version": "3"}))
        for word, setup in fences.items()
    ]


def machine_scenarios(keyspace: Keyspace) -> list[Scenario]:
    keys: Values = {"machines": keyspace.machines}
    claim: Values = {"machines": keyspace.machines, "born": keyspace.born, "nonce": "mine", "span": 1000}
    born: Command = ("SET", keyspace.born, "1")
    full: Command = (
        "HSET",
        keyspace.machines,
        *(word for number in range(1024) for word in (number, f"{FAR} other")),
    )
    held: Command = ("HSET", keyspace.machines, 5, f"{FAR} mine", 6, f"{FAR} other")
    renew = keys | {"nonce": "mine", "span": 1000}
    return [
        Scenario(
            script="machine_id/claim", word="claimed", setup=(born, held), values=claim | {"wait": 1000}
        ),
        Scenario(script="machine_id/claim", word="early", values=claim | {"wait": 1000}),
        Scenario(script="machine_id/claim", word="none", setup=(born, full), values=claim | {"wait": 1000}),
        Scenario(script="machine_id/renew", word="renewed", setup=(held,), values=renew | {"id": 5}),
        Scenario(script="machine_id/renew", word="lost", setup=(held,), values=renew | {"id": 6}),
        Scenario(script="machine_id/renew", word="lost", setup=(held,), values=renew | {"id": 7}),
    ]


def other_scenarios(keyspace: Keyspace) -> list[Scenario]:
    inboxes = [keyspace.inbox(runner, 0) for runner in ("me", "you")]
    stream = (
        ("XADD", inboxes[0], "1-1", "k", "free"),
        ("PEXPIRE", inboxes[0], TTL),
    )
    standing = (("SET", keyspace.record, "theirs"),)
    settle: Values = {"record": keyspace.record, "ours": b"ours", "seen": b""}
    return [
        Scenario(
            script="inbox/keep",
            word="ok",
            each_words=("kept", "made"),
            setup=stream,
            values={"ttl": TTL},
            each=tuple({"inbox": inbox} for inbox in inboxes),
        ),
        Scenario(script="doctor/rights", word="ok", values={"probe": keyspace.probe}),
        Scenario(script="record/settle", word="written", values=settle),
        Scenario(script="record/settle", word="written", setup=standing, values=settle | {"seen": b"theirs"}),
        Scenario(script="record/settle", word="stands", setup=standing, values=settle),
    ]


def value_scenarios(keyspace: Keyspace) -> list[Scenario]:
    """What is there, what was read, what it becomes; None: nothing."""
    table: list[tuple[str, str | None, bytes | None, bytes | None]] = [
        ("ok", "old", b"old", b"new"),
        ("ok", "old", b"old", None),
        ("ok", "", b"", b"new"),  # an empty value is one
        ("ok", None, None, b"new"),
        ("changed", "other", b"old", b"new"),
        ("changed", None, b"old", b"new"),
        ("changed", "other", None, b"new"),
        ("changed", "", None, b"new"),
    ]
    store = keyspace.values(0)
    return [
        Scenario(
            script="key_value/compare_and_set",
            word=word,
            setup=(("HSET", store, "b", "beside", *(() if stored is None else ("a", stored))),),
            values={
                "store": store,
                "name": "a",
                "existed": read is not None,
                "expected": read or b"",
                "stays": new is not None,
                "value": new or b"",
            },
        )
        for word, stored, read, new in table
    ]
