"""The script that tries rights knows every command that scripts run, and leaves nothing behind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import redis_cluster_kit
from redis_cluster_kit.cli.doctor.rights_checks import plain_commands
from redis_cluster_kit.redis_access import Keyspace, Lanes, RedisUrl, Script
from redis_cluster_kit.redis_access.scripts import script_folder
from redis_cluster_kit.settings import RedisSettings

_PLAIN = re.compile(r"\.call\(\s*[^,\"]+,\s*\*?\(?\"([A-Z]+)\"")
_CALL = re.compile(r"redis\.p?call\(\s*'([A-Z]+)'")


def test_every_command_of_the_scripts_is_tried() -> None:
    probe = script_folder() / "doctor" / "rights.lua"
    text = probe.read_text()
    tried = set(re.findall(r"try\('([A-Z]+)'", text)) | set(_CALL.findall(text))
    used = {
        command
        for path in script_folder().rglob("*.lua")
        if path != probe
        for command in _CALL.findall(path.read_text())
    }
    assert used
    assert used - tried == set()


def _used() -> tuple[set[str], set[str]]:
    """What scripts run, and what is sent outside of them."""
    package = Path(redis_cluster_kit.__file__).parent
    return (
        {
            command
            for path in script_folder().rglob("*.lua")
            for command in re.findall(r"(?:call|try)\(\s*'([A-Z]+)'", path.read_text())
        },
        {
            command
            for path in package.rglob("*.py")
            if path.relative_to(package).parts[0] not in ("cli", "embedded", "testing")
            for command in _PLAIN.findall(path.read_text())
        },
    )


def test_the_least_line_of_the_how_to_names_what_is_used_and_nothing_else() -> None:
    page = Path(redis_cluster_kit.__file__).parents[1] / "docs" / "how-to" / "tls-and-acl.md"
    line = re.search(r'^```text title="least"\n(.+)$', page.read_text(), re.MULTILINE)
    assert line is not None
    allowed = {word[1:].partition("|")[0].upper() for word in line[1].split() if word.startswith("+")}
    in_scripts, plain = _used()
    # `Script` sends EVAL and EVALSHA, `replicated(n)` WAIT; the start reads INFO and CONFIG.
    assert allowed == in_scripts | plain | {"EVAL", "EVALSHA", "WAIT", "INFO", "CONFIG"}


def test_every_command_sent_outside_scripts_is_tried() -> None:
    package = Path(redis_cluster_kit.__file__).parent
    used = {
        command
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[0] not in ("cli", "embedded", "testing")
        for command in _PLAIN.findall(path.read_text())
    }
    assert {"GET", "XADD", "XREAD"} <= used
    # A right is the same inside a script: what has no harmless form is tried there.
    in_script = set(re.findall(r"try\('([A-Z]+)'", (script_folder() / "doctor" / "rights.lua").read_text()))
    assert used - {str(words[0]) for words in plain_commands("probe")} - in_script == set()


async def test_a_user_with_all_rights_is_refused_nothing(redis_server: Any, namespace: str) -> None:
    keyspace = Keyspace(namespace, 4)
    async with Lanes(RedisUrl.parse(redis_server.url), RedisSettings()) as lanes:
        outcome = await Script.load("doctor/rights")(lanes, keyspace.home_slot, probe=keyspace.probe)
        assert outcome.fields[0] == []
        assert await lanes.call(keyspace.home_slot, "EXISTS", keyspace.probe) == 0


async def test_a_scan_finds_the_keys_of_every_master(redis_server: Any, namespace: str) -> None:
    keyspace = Keyspace(namespace, 16)
    async with Lanes(RedisUrl.parse(redis_server.url), RedisSettings()) as lanes:
        keys = [keyspace.inbox(f"r{number}", number % 16) for number in range(300)]
        for number, key in enumerate(keys):
            slot = keyspace.slots[number % 16]
            assert keyspace.slot_of(key) == slot
            await lanes.call(slot, "SET", key, "1", "PX", 60_000)
        found = {key.decode() async for key in lanes.scan(keyspace.pattern(), count=10)}
        assert found == set(keys)
