"""Every outcome word of every script, on every server; and what is refused changes nothing.

The scenarios are compared with the headers: a new word without one fails.
"""

from __future__ import annotations

from typing import Any

import fakeredis
import pytest

from redis_cluster_kit.embedded import RedisClusterServers, RedisServer
from redis_cluster_kit.redis_access import Keyspace, Lanes, Outcome, RedisUrl, Script, script_names
from redis_cluster_kit.settings import RedisSettings

from .scenarios import NEWER, OLD, Scenario, scenarios

# fakeredis answers XREADGROUP inside Lua with one level too few, and with {} for nothing.
_SHIM = """
local real = redis
local redis = { pcall = real.pcall, call = function(name, ...)
  local reply = real.call(name, ...)
  if name ~= 'XREADGROUP' then
    return reply
  end
  return reply[1] and { reply } or false
end }
"""


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
    if not header.each_words:
        return set()
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


IN_BATCHES = ("mailbox/append", "turn/commit")


def _table_of_batches() -> list[Any]:
    found = enumerate(scenarios(Keyspace("n", 1)))
    return [
        pytest.param(number, id=f"{number}-{one.name}")
        for number, one in found
        if one.script in IN_BATCHES and not one.each
    ]


@pytest.mark.parametrize("number", _table_of_batches())
async def test_outcomes_in_a_batch(
    number: int, redis_server: RedisServer | RedisClusterServers, namespace: str
) -> None:
    """The call of the scenario between two that stop at an error: their fence is no hash, or a stream is."""
    keyspace = Keyspace(namespace, 1)
    scenario = scenarios(keyspace)[number]
    script = Script.load(scenario.script)
    keys, arguments = script.bind(scenario.values, ())
    wrong, _ = script.bind(dict.fromkeys(script.header.keys, keyspace.born) | _arguments(script), ())
    batch = script.in_batches()
    async with Lanes(RedisUrl.parse(redis_server.url), RedisSettings()) as lanes:
        for command in (*scenario.setup, ("SET", keyspace.born, "x")):
            await lanes.call(keyspace.home_slot, *command)
        before = _dump(redis_server, keyspace)
        every = (*wrong, *keys, *wrong, *arguments * 3)
        first, reply, last = await lanes.call(keyspace.home_slot, "EVAL", batch.text, len(keys) * 3, *every)
    after = _dump(redis_server, keyspace)
    for stopped in (first, last):
        assert stopped[0] == b""
        assert b"WRONGTYPE" in stopped[1]
    outcome = script.read(reply)
    _check_answer(script, scenario, outcome)
    for key in _unchanged_keys(script, scenario, outcome, before.keys() | after.keys()):
        assert after.get(key) == before.get(key), f"{outcome.word} has changed {key!r}"


def _arguments(script: Script) -> dict[str, Any]:
    return dict.fromkeys(script.header.arguments, "1")


@pytest.mark.parametrize("number", _table())
def test_outcomes_on_fakeredis(number: int) -> None:
    """Services may test with fakeredis: `plain_text` is what it can read."""
    scenario = scenarios(Keyspace("n", 1))[number]
    script = Script.load(scenario.script)
    with fakeredis.FakeRedis(version=(7, 0)) as client:
        for command in scenario.setup:
            client.execute_command(*command)
        keys, arguments = script.bind(scenario.values, scenario.each)
        reply = client.eval(_SHIM + script.plain_text, len(keys), *keys, *arguments)
    _check_answer(script, scenario, script.read(reply))


# --- A fence that is not the installed one ---


def _writers() -> list[str]:
    """The scripts that write under one fence."""
    headers = {name: Script.load(name).header for name in script_names()}
    return [
        name
        for name, header in headers.items()
        if "fence" in header.notes.get("include", []) and {"number", "nonce"} <= header.arguments.keys()
    ]


_WRONG = {
    "an older one is installed": (("f", OLD), "fenced"),
    "a newer one is installed": (("f", NEWER), "fenced"),
    "its twin of another nonce is installed": (("n", "other"), "fenced"),
    "none is installed": ((), "unfenced"),
}


@pytest.mark.parametrize("wrong", _WRONG)
@pytest.mark.parametrize("name", _writers())
async def test_a_write_under_another_fence_is_refused_and_changes_nothing(
    name: str, wrong: str, valkey: RedisServer, namespace: str
) -> None:
    """Whatever the script would do under the right fence: the fence decides before all else."""
    keyspace = Keyspace(namespace, 1)
    script = Script.load(name)
    words = script.header.words
    would = next(
        item for item in scenarios(keyspace) if item.script == name and words[item.word] == "returns"
    )
    change, word = _WRONG[wrong]
    async with Lanes(RedisUrl.parse(valkey.url), RedisSettings()) as lanes:
        for command in would.setup:
            await lanes.call(keyspace.home_slot, *command)
        fence = str(would.values["fence"])
        await lanes.call(keyspace.home_slot, *(("HSET", fence, *change) if change else ("DEL", fence)))
        before = _dump(valkey, keyspace)
        outcome = await script(lanes, keyspace.home_slot, each=would.each, **would.values)
    assert outcome.word == word
    assert _dump(valkey, keyspace) == before


def test_every_script_that_looks_at_the_fence_is_among_them() -> None:
    others = {"fence/check", "fence/close", "fence/install"}  # for many shards: in the table above
    including = {
        name for name in script_names() if "fence" in Script.load(name).header.notes.get("include", [])
    }
    assert including == {*_writers(), *others}
    assert len(_writers()) >= 9
