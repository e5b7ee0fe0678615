"""Every outcome word of every script, on every server; and what is refused changes nothing.

The table below is compared with the headers: a new word without a scenario fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import fakeredis
import pytest

from redis_cluster_kit.embedded import RedisClusterServers, RedisServer
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.redis_access import Keyspace, Lanes, Outcome, RedisUrl, Script, script_names
from redis_cluster_kit.settings import RedisSettings

Command: TypeAlias = tuple[str | int, ...]
Values: TypeAlias = dict[str, Any]

FAR = 9_000_000_000_000  # server milliseconds, in the year 2255
OLD, FENCE, NEWER = "72057594037927936", "72057594037927937", "72057594037927938"  # beyond 2^53
TTL = 60_000


@dataclass(frozen=True, kw_only=True)
class Scenario:
    script: str
    word: str
    """What it must answer."""
    each_words: tuple[str, ...] = ()
    """What it must answer for each member of the group."""
    setup: tuple[Command, ...] = ()
    values: Values = field(default_factory=dict[str, Any])
    each: tuple[Values, ...] = ()

    @property
    def name(self) -> str:
        return " ".join((self.script, self.word, *self.each_words))


def scenarios(keyspace: Keyspace) -> list[Scenario]:
    return [
        *_lease_scenarios(keyspace),
        *_fence_scenarios(keyspace),
        *_granting_scenarios(keyspace),
        *_membership_scenarios(keyspace),
        *_state_scenarios(keyspace),
        *_machine_scenarios(keyspace),
        *_other_scenarios(keyspace),
    ]


def _lease_scenarios(keyspace: Keyspace) -> list[Scenario]:
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


def _install(fence: str, number: str = FENCE, nonce: str = "mine") -> Command:
    return ("HSET", fence, "f", number, "n", nonce, "r", "me", "i", "inbox")


def _fence_scenarios(keyspace: Keyspace) -> list[Scenario]:
    held, stale, stolen, bare = (keyspace.fence(ShardId("default", number)) for number in range(4))
    setup = (_install(held), _install(stale, NEWER), _install(stolen, nonce="other"))
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


def _granting_scenarios(keyspace: Keyspace) -> list[Scenario]:
    shards = [ShardId("default", number) for number in range(6)]
    fences = [keyspace.fence(shard) for shard in shards]
    leases = [keyspace.lease(shard) for shard in shards]
    setup = (
        *(("SET", lease, "me", "PX", TTL) for lease in leases[:5]),
        ("SET", leases[5], "you", "PX", TTL),
        _install(fences[1], OLD, "other"),
        _install(fences[2], FENCE, "mine"),
        _install(fences[3], FENCE, "other"),
        _install(fences[4], NEWER, "mine"),
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


def _membership_scenarios(keyspace: Keyspace) -> list[Scenario]:
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


def _state_scenarios(keyspace: Keyspace) -> list[Scenario]:
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
        }
        return Scenario(script="state/write", word=word, setup=setup, values=values)

    def cached(number: str, version: str) -> Command:
        return ("HSET", state, "f", number, "v", version, "s", 1, "b", "old")

    return [
        write("ok", _install(fence)),
        write("ok", _install(fence), cached(FENCE, "9")),  # by number, not by text
        write("ok", _install(fence), cached(OLD, "11")),  # the fence decides before the version
        write("stale", _install(fence), cached(FENCE, "10")),
        write("stale", _install(fence), cached(FENCE, "11")),
        write("stale", _install(fence), cached(NEWER, "1")),
        write("fenced", _install(fence, NEWER), cached(OLD, "1")),
        write("fenced", _install(fence, FENCE, "other")),
        write("unfenced", cached(OLD, "1")),
    ]


def _machine_scenarios(keyspace: Keyspace) -> list[Scenario]:
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


def _other_scenarios(keyspace: Keyspace) -> list[Scenario]:
    inboxes = [keyspace.inbox(runner, 0) for runner in ("me", "you")]
    stream = (
        ("XADD", inboxes[0], "1-1", "k", "free"),
        ("PEXPIRE", inboxes[0], TTL),
    )
    standing = (("SET", keyspace.record, "theirs"),)
    settle: Values = {"record": keyspace.record, "ours": b"ours", "overrule": False}
    return [
        Scenario(
            script="inbox/keep",
            word="ok",
            each_words=("kept", "made"),
            setup=stream,
            values={"ttl": TTL},
            each=tuple({"inbox": inbox} for inbox in inboxes),
        ),
        Scenario(script="record/settle", word="written", values=settle),
        Scenario(script="record/settle", word="written", setup=standing, values=settle | {"overrule": True}),
        Scenario(script="record/settle", word="stands", setup=standing, values=settle),
    ]


def _table() -> list[Any]:
    """(number, id) of every scenario; scenarios with the same words are told apart by their place."""
    named = [scenario.name for scenario in scenarios(Keyspace("n", 1))]
    return [pytest.param(number, id=f"{number}-{name}") for number, name in enumerate(named)]


# --- The table is complete ---


def test_every_word_of_every_header_has_a_scenario() -> None:
    declared, reached = set[tuple[str, str, str]](), set[tuple[str, str, str]]()
    for name in script_names():
        header = Script.load(name).header
        declared |= {(name, "", word) for word in header.words}
        declared |= {(name, "each", word) for word in header.each_words}
    for scenario in scenarios(Keyspace("n", 1)):
        reached |= {(scenario.script, "", scenario.word)}
        reached |= {(scenario.script, "each", word) for word in scenario.each_words}
    assert reached == declared


# --- On every server ---


def _parts(server: RedisServer | RedisClusterServers) -> tuple[RedisServer, ...]:
    return server.servers if isinstance(server, RedisClusterServers) else (server,)


def _dump(server: RedisServer | RedisClusterServers, keyspace: Keyspace) -> dict[bytes, tuple[Any, Any]]:
    """Every key of the namespace with its value, and the time at which it expires."""
    found: dict[bytes, tuple[Any, Any]] = {}
    for part in _parts(server):
        with part.connect() as client:
            keys = client.call("KEYS", keyspace.pattern())
            assert isinstance(keys, list)
            for key in map(str, keys):
                found[key.encode()] = (client.call("DUMP", key), client.call("PEXPIRETIME", key))
    return found


def _unchanged_keys(script: Script, scenario: Scenario, outcome: Outcome, all_keys: set[bytes]) -> set[bytes]:
    """The keys that must be as they were: all of them after a refusal, else those of refused members."""
    header = script.header
    if "no-writes" in header.shebang or header.words[outcome.word] == "refuses":
        return all_keys
    return {
        str(member[name]).encode()
        for member, answer in zip(scenario.each, outcome.each, strict=True)
        if header.each_words[answer.word] == "refuses"
        for name in header.each_keys
    }


def _check_answer(script: Script, scenario: Scenario, outcome: Outcome) -> None:
    header = script.header
    assert outcome.word == scenario.word
    assert tuple(answer.word for answer in outcome.each) == scenario.each_words
    assert len(outcome.fields) == len(header.fields[outcome.word])
    for answer in outcome.each:
        assert len(answer.fields) == len(header.each_fields[answer.word])


@pytest.mark.parametrize("number", _table())
async def test_outcomes(number: int, redis_server: RedisServer | RedisClusterServers, namespace: str) -> None:
    keyspace = Keyspace(namespace, 1)
    scenario = scenarios(keyspace)[number]
    script = Script.load(scenario.script)
    async with Lanes(RedisUrl.parse(redis_server.url), RedisSettings()) as lanes:
        for command in scenario.setup:
            await lanes.call(keyspace.home_slot, *command)
        before = _dump(redis_server, keyspace)
        outcome = await script(lanes, keyspace.home_slot, each=scenario.each, **scenario.values)
    after = _dump(redis_server, keyspace)
    _check_answer(script, scenario, outcome)
    for key in _unchanged_keys(script, scenario, outcome, before.keys() | after.keys()):
        assert after.get(key) == before.get(key), f"{outcome.word} has changed {key!r}"


@pytest.mark.parametrize("number", _table())
def test_outcomes_on_fakeredis(number: int) -> None:
    """Services may test with fakeredis: `plain_text` is what it can read."""
    scenario = scenarios(Keyspace("n", 1))[number]
    script = Script.load(scenario.script)
    with fakeredis.FakeRedis(version=(7, 0)) as client:
        for command in scenario.setup:
            client.execute_command(*command)
        keys, arguments = script.bind(scenario.values, scenario.each)
        reply = client.eval(script.plain_text, len(keys), *keys, *arguments)
    _check_answer(script, scenario, script.read(reply))
