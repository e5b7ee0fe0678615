"""Each rule that keeps messages safe, taken out of a copy of the kit: a named scene must notice it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.redis_access import Script, script_names
from redis_cluster_kit.redis_access.scripts import script_folder
from redis_cluster_kit.testing import ChildProcess, Mutant, mutated_tree, patched_text

from .scenes import SCENES, play

PROGRAM = f"{Path(__file__).with_name('scenes.py')}:main"
PUT = "local entry = redis.call('XADD', mailbox, '*', 'i', id, 'm', message)"

MUTANTS = [
    Mutant(
        "no dedupe",
        "lua/include/markers.lua",
        "  if not marker then\n    return nil\n  end\n  local phase, _, known",
        "  if true then\n    return nil\n  end\n  local phase, _, known",
        invariant="I4",
        test="a_send_repeated",
    ),
    Mutant(
        "full before duplicate",
        "lua/mailbox/append.lua",
        "local now = server_ms()\n",
        "local now = server_ms()\nif redis.call('XLEN', mailbox) >= capacity then return { 'full' } end\n",
        invariant="I2",
        test="a_repeat_to_a_full_mailbox",
    ),
    Mutant(
        "append without not_after",
        "lua/mailbox/append.lua",
        "if not_after > 0 and now > not_after then",
        "if false then",
        invariant="I4",
        test="a_repeat_that_comes_late",
    ),
    Mutant(
        "commit without the entry check",
        "lua/turn/commit.lua",
        "if place ~= entry then",
        "check = check or '-'\nif false then",
        invariant="I2",
        test="a_message_withdrawn_in_its_turn",
    ),
    Mutant(
        "commit without the version check",
        "lua/turn/commit.lua",
        "if (redis.call('HGET', entity, 'v') or '0') ~= expected then",
        "if false then",
        invariant="I2",
        test="a_state_deleted_between_turns",
    ),
    Mutant(
        "> before 0",
        "lua/include/claim.lua",
        "  while after ~= '' do\n",
        """
  local new = redis.call('XREADGROUP', 'GROUP', 'owner', 'owner', 'COUNT', 1, 'STREAMS', mailbox, '>')
  if new and new[1] then
    return new[1][2][1], '0'
  end
  while after ~= '' do
""",
        invariant="I3",
        test="a_takeover_with_something_pending",
    ),
    Mutant(
        "MAXLEN trim",
        "lua/include/mailbox.lua",
        PUT,
        PUT.replace("mailbox, '*'", "mailbox, 'MAXLEN', capacity - 1, '*'"),
        invariant="I2",
        test="a_flood",
    ),
    Mutant(
        "ack before commit",
        "lua/include/claim.lua",
        "  local id, message = entry[2][2], entry[2][4]\n",
        "  local id, message = entry[2][2], entry[2][4]\n  redis.call('XACK', mailbox, 'owner', entry[1])\n",
        invariant="I2",
        test="an_owner_that_dies_in_its_turn",
    ),
    Mutant(
        "commit without the fence",
        "lua/turn/commit.lua",
        "if word ~= 'ok' then",
        "if false then",
        invariant="I1",
        test="a_stale_owner",
    ),
    Mutant(
        "relay out of order",
        "redis_cluster_kit/delivery/outbox.py",
        "line = (item.sender, parcel.group, parcel.number, parcel.member)",
        "line = (item.sender + entry, parcel.group, parcel.number, parcel.member)",
        invariant="I3",
        test="sends_of_a_turn_to_a_full_mailbox",
    ),
    Mutant(
        "a failure's count is repeated",
        "lua/turn/fail.lua",
        "-- repeat: unsafe, each call counts",
        "-- repeat: safe, or so it says",
        invariant="I4",
        test="a_failure_whose_count_was_not_heard",
    ),
    Mutant(
        "client retries left on",
        "redis_cluster_kit/redis_access/lanes.py",
        "return seen.is_retryable and (repeat or seen.execution is not Execution.UNKNOWN)",
        "return seen.is_retryable",
        invariant="I4",
        test="a_client_that_retries_by_itself",
    ),
    Mutant(
        "an unusable nudge dropped instead of marked",
        "redis_cluster_kit/runtime/activation.py",
        "            self._is_marked = True\n            self.around.counters.marked += 1\n",
        "            self.around.counters.marked += 1\n",
        invariant="I9",
        test="a_nudge_that_cannot_be_used",
    ),
]
OF_SCRIPTS = [mutant for mutant in MUTANTS if mutant.file.endswith(".lua")]
OF_CODE = [mutant for mutant in MUTANTS if mutant not in OF_SCRIPTS]


def wrong_scripts(mutant: Mutant) -> dict[str, Script]:
    """Every script as it is with the mutant in its text or in what it includes."""
    root = script_folder()
    wrong = root.parent / mutant.file
    texts = {
        path.relative_to(root).with_suffix("").as_posix(): patched_text(mutant, path.read_text())
        if path == wrong
        else path.read_text()
        for path in root.rglob("*.lua")
    }
    includes = {name.removeprefix("include/"): text for name, text in texts.items()}
    return {name: Script(name, texts[name], includes) for name in script_names()}


@pytest.fixture(params=OF_SCRIPTS, ids=lambda mutant: mutant.name)
def script_mutant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mutant:
    """Put a mutant into the scripts of this process, for one test."""
    mutant: Mutant = request.param
    changed = 0
    for name, wrong in wrong_scripts(mutant).items():
        script = Script.load(name)
        for part in ("text", "plain_text", "included", "body", "sha", "is_repeatable"):
            changed += getattr(script, part) != getattr(wrong, part)
            monkeypatch.setattr(script, part, getattr(wrong, part))
    assert changed, "no script is another one"
    return mutant


@pytest.mark.parametrize("scene", SCENES)
async def test_nothing_is_broken_without_a_mutant(valkey: RedisServer, namespace: str, scene: str) -> None:
    verdict = await play(scene, valkey.url, namespace)
    verdict.require()
    assert any(verdict.examined.values())


async def test_a_wrong_script_is_noticed(valkey: RedisServer, namespace: str, script_mutant: Mutant) -> None:
    verdict = await play(script_mutant.test, valkey.url, namespace)
    assert script_mutant.invariant in verdict.invariants


@pytest.mark.parametrize("mutant", OF_CODE, ids=lambda mutant: mutant.name)
async def test_wrong_code_is_noticed(
    valkey: RedisServer, namespace: str, tmp_path: Path, mutant: Mutant
) -> None:
    tree = mutated_tree(mutant, tmp_path / "tree")
    options = json.dumps({"redis": valkey.url, "namespace": namespace, "scenes": [mutant.test]})
    async with ChildProcess(PROGRAM, options, pythonpath=[tree]) as child:
        assert (await child.wait_for("started"))["package"] == str(tree / "redis_cluster_kit")
        verdict = await child.wait_for("verdict", timeout=30)
        assert await child.wait() == 0, child.tail
    assert mutant.invariant in verdict["broken"]


def test_every_scene_has_its_mutant() -> None:
    assert {mutant.test for mutant in MUTANTS} == set(SCENES)
