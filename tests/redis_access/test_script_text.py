"""Script texts: what the loader accepts, what it makes of it, and how it is sent."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.errors import Execution, PersistenceFailedError
from redis_cluster_kit.redis_access import Keyspace, Lanes, RedisUrl, Script, script_names
from redis_cluster_kit.redis_access.scripts import script_folder
from redis_cluster_kit.settings import RedisSettings
from redis_cluster_kit.testing import Proxy, command

HEAD = "#!lua flags=allow-oom"
GOOD = (
    "-- purpose: adds",
    "-- key counter (string): the sum",
    "-- arg amount (integer): how much",
    "-- arg twice (flag): add it twice",
    "-- returns ok sum: added",
    "-- refuses odd: odd amounts are not added",
    "-- repeat: unsafe, it adds again",
    "-- include: parity",
)
BODY = "if is_odd(amount) then return { 'odd' } end return { 'ok', redis.call('INCRBY', counter, amount) }"
INCLUDES = {"parity": "-- Whether a number is odd.\nlocal function is_odd(n)\n  return n % 2 == 1\nend\n"}


def _script(*lines: str, head: str = HEAD, body: str = BODY) -> Script:
    return Script("sum/add", "\n".join((head, *lines, body)), INCLUDES)


def _without(start: str, *more: str) -> tuple[str, ...]:
    return (*(line for line in GOOD if not line.startswith(start)), *more)


# --- The header ---


def test_a_header_is_read() -> None:
    header = _script(*GOOD).header
    assert header.shebang == HEAD
    assert header.keys == {"counter": "string"}
    assert header.arguments == {"amount": "integer", "twice": "flag"}
    assert header.words == {"ok": "returns", "odd": "refuses"}
    assert header.fields == {"ok": ("sum",), "odd": ()}
    assert not header.repeats_group


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (_without("-- purpose"), "says no purpose"),
        (_without("-- repeat"), "says no repeat"),
        (_without("-- repeat", "-- repeat: safe"), "safe or unsafe"),
        (_without("-- repeat", "-- repeat: maybe, who knows"), "safe or unsafe"),
        (("-- purpose: p", "-- repeat: safe, it reads"), "returns nothing"),
        ((*GOOD, "-- key counter (hash): again"), "names counter twice"),
        ((*GOOD, "-- arg counter (text): again"), "names counter twice"),
        ((*GOOD, "-- arg each (text): taken"), "names each twice"),
        ((*GOOD, "-- key more (table): no such type"), "table is no kind of key"),
        ((*GOOD, "-- arg more (number): no such kind"), "number is no kind of arg"),
        ((*GOOD, "-- arg more (string): a key's type"), "string is no kind of arg"),
        ((*GOOD, "-- returns ok: again"), "answers ok twice"),
        ((*GOOD, "-- each returns fine: no group"), "no group that is repeated"),
        ((*GOOD, "-- returns Ok: capital"), "not a header line"),
        ((*GOOD, "-- arg more: no kind"), "not a header line"),
        ((*GOOD, "--"), "not a header line"),
        ((*GOOD, "-- just a comment"), "not a header line"),
        ((*GOOD, "-- include: nothing"), "no include/nothing.lua"),
    ],
)
def test_headers_that_are_refused(lines: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=rf"sum/add\.lua.*{said}"):
        _script(*lines)


def test_a_group_needs_no_answers() -> None:
    script = _script(*GOOD, "-- each arg item (bytes): one of several")
    assert script.header.repeats_group
    values: dict[str, Any] = {"counter": "k", "amount": 4, "twice": False}
    assert script.bind(values, [{"item": b"a"}, {"item": b"b"}]) == (["k"], [4, 0, b"a", b"b"])
    assert script.read([b"ok", 4]).each == ()


def test_a_twin_that_a_full_server_refuses() -> None:
    script = _script(*GOOD)
    twin = script.refused_without_memory()
    assert twin.text == f"#!lua\n{script.plain_text}"
    assert script.text.startswith(f"{HEAD}\n")
    assert twin.sha == _script(*GOOD, head="#!lua").sha != script.sha
    assert twin.header is script.header


@pytest.mark.parametrize("head", ["", "-- purpose: first", "#!python", "return 1"])
def test_the_first_line_names_the_language(head: str) -> None:
    with pytest.raises(ValueError, match="must begin with #!lua"):
        _script(*GOOD, head=head)


def test_only_the_first_line_differs_for_servers_that_do_not_know_it() -> None:
    script = _script(*GOOD)
    assert script.text == f"{HEAD}\n{script.plain_text}"
    assert "--" not in script.text
    assert "local function is_odd" in script.text


def test_a_changed_comment_is_the_same_script_and_a_changed_body_another() -> None:
    script = _script(*GOOD)
    assert _script(*_without("-- purpose", "-- purpose: other words")).sha == script.sha
    assert _script(*GOOD, body=BODY + " ").sha != script.sha
    assert _script(*GOOD, head="#!lua").sha != script.sha


# --- The call ---


def test_arguments_go_by_name() -> None:
    keys, arguments = _script(*GOOD).bind({"twice": True, "amount": 4, "counter": "k"}, [])
    assert (keys, arguments) == (["k"], [4, 1])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"counter": "k", "amount": 4}, r"missing \['twice'\], unknown \[\]"),
        ({"counter": "k", "amount": 4, "twice": True, "often": 1}, r"missing \[\], unknown \['often'\]"),
        ({}, r"missing \['amount', 'counter', 'twice'\]"),
    ],
)
def test_names_are_checked_before_anything_is_sent(values: dict[str, str | int], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        _script(*GOOD).bind(values, [])


def test_the_names_of_a_group_are_checked() -> None:
    with pytest.raises(TypeError, match="no repeated group"):
        _script(*GOOD).bind({"counter": "k", "amount": 4, "twice": True}, [{"x": 1}])
    acquire = Script.load("lease/acquire")
    with pytest.raises(TypeError, match=r"\(each\): missing \['lease'\], unknown \['leash'\]"):
        acquire.bind({"runner": "me", "ttl": 1}, [{"lease": "a"}, {"leash": "b"}])
    keys, arguments = Script.load("fence/check").bind(
        {"nonce": "n"}, [{"fence": "a", "number": "1"}, {"fence": "b", "number": "2"}]
    )
    assert (keys, arguments) == (["a", "b"], ["n", "1", "2"])


def test_an_order_is_checked_against_the_header() -> None:
    script = _script(*GOOD)
    assert script.in_order("counter", "amount", "twice") is script
    for names in (("counter", "twice", "amount"), ("counter", "amount"), ("amount", "twice", "counter")):
        with pytest.raises(TypeError, match=r"script sum/add takes \('counter', 'amount', 'twice'\), not"):
            script.in_order(*names)


# --- The answer ---


@pytest.mark.parametrize("reply", [None, b"ok", [], [b"fine"], [1], 7])
def test_an_answer_the_header_does_not_name(reply: object) -> None:
    with pytest.raises(PersistenceFailedError, match="which its header does not name") as caught:
        Script.load("lease/acquire").read(reply)
    assert caught.value.execution is Execution.UNKNOWN
    assert not caught.value.is_retryable


@pytest.mark.parametrize("reply", [[b"ok"], [b"ok", b"taken"], [b"ok", [b"taken"]], [b"ok", [[b"stolen"]]]])
def test_an_answer_without_one_for_each(reply: object) -> None:
    with pytest.raises(PersistenceFailedError, match="which its header does not name"):
        Script.load("lease/acquire").read(reply)


# --- On a server ---


async def test_numbers_flags_and_bytes_arrive_as_what_they_are(valkey: RedisServer, namespace: str) -> None:
    keyspace = Keyspace(namespace, 1)
    script = _script(
        "-- purpose: says what it got",
        "-- key born (string): unused",
        "-- arg whole (integer): a number",
        "-- arg yes (flag): true",
        "-- arg no (flag): false",
        "-- arg raw (bytes): anything",
        "-- each arg part (integer): a number",
        "-- returns ok whole yes no raw: what it got",
        "-- each returns ok double: twice the number",
        "-- repeat: safe, it only reads",
        head="#!lua flags=no-writes",
        body="local answers = {} for n, one in ipairs(each) do answers[n] = { 'ok', one.part * 2 } end\n"
        "return { 'ok', whole + 1, tostring(yes), tostring(no), raw, answers }",
    )
    raw = bytes(range(256))
    values: dict[str, Any] = {"born": keyspace.born, "whole": 41, "yes": True, "no": False, "raw": raw}
    async with Lanes(RedisUrl.parse(valkey.url), RedisSettings()) as lanes:
        slot = keyspace.home_slot
        outcome = await script(lanes, slot, **values, each=[{"part": 1}, {"part": 21}])
        empty = await script(lanes, slot, **values)
    assert outcome.fields == (42, b"true", b"false", raw)
    assert [answer.fields for answer in outcome.each] == [(2,), (42,)]
    assert empty.each == ()


async def test_a_server_that_forgot_the_script_gets_its_text(
    private_valkey: RedisServer, namespace: str
) -> None:
    keyspace = Keyspace(namespace, 1)
    script = Script.load("record/settle")
    values: dict[str, Any] = {"record": keyspace.record, "ours": b"{}", "seen": b""}

    def calls(name: str) -> int:
        with private_valkey.connect() as client:
            found = client.info("commandstats").get(f"cmdstat_{name}", "calls=0,")
        return int(re.findall(r"calls=(\d+)", found)[0])

    async with Lanes(RedisUrl.parse(private_valkey.url), RedisSettings()) as lanes:
        for round_number in (1, 2):
            for _ in range(3):
                outcome = await script(lanes, keyspace.home_slot, **values)
                assert outcome.word == "written"
            assert (calls("eval"), calls("evalsha")) == (round_number, 3 * round_number)
            private_valkey.call("SCRIPT", "FLUSH")


async def test_doubt_about_the_first_attempt_stays_when_the_server_forgot_the_script(
    private_valkey: RedisServer, namespace: str
) -> None:
    """The reply is lost, the next attempt finds no script, and its text is refused: who knows?"""
    keyspace = Keyspace(namespace, 1)
    script = _script(*_without("-- repeat", "-- repeat: safe, for this test"), head="#!lua")
    values: dict[str, Any] = {"counter": keyspace.born, "amount": 2, "twice": False}
    async with (
        Proxy.to("127.0.0.1", private_valkey.port) as proxy,
        Lanes(RedisUrl.parse(proxy.url()), RedisSettings()) as lanes,
    ):
        await script(lanes, keyspace.home_slot, **values)
        loss = proxy.lose_reply(command("EVALSHA"))

        def forget(frame: tuple[bytes, ...]) -> bool:
            """What passes next meets a server that has forgotten the script, and is full."""
            if frame[0] == b"EVALSHA" and loss.count:
                private_valkey.call("SCRIPT", "FLUSH")
                private_valkey.call("CONFIG", "SET", "maxmemory", "1")
            return False

        proxy.lose_command(forget)
        with pytest.raises(PersistenceFailedError, match="OOM") as caught:
            await script(lanes, keyspace.home_slot, **values)
        loss.assert_fired(1)
    assert caught.value.execution is Execution.UNKNOWN
    assert private_valkey.call("GET", keyspace.born) == "4"  # it had run


async def test_a_full_server_refuses_the_twin_and_runs_the_script(
    private_valkey: RedisServer, namespace: str
) -> None:
    keyspace = Keyspace(namespace, 1)
    script = _script(*_without("-- repeat", "-- repeat: safe, for this test"))
    twin = script.refused_without_memory()
    values: dict[str, Any] = {"counter": keyspace.born, "amount": 2, "twice": False}
    async with Lanes(RedisUrl.parse(private_valkey.url), RedisSettings()) as lanes:
        for each in (script, twin):
            assert (await each(lanes, keyspace.home_slot, **values)).word == "ok"
        private_valkey.call("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(PersistenceFailedError, match="OOM") as caught:
            await twin(lanes, keyspace.home_slot, **values)
        assert caught.value.execution is Execution.NOT_EXECUTED
        assert (await script(lanes, keyspace.home_slot, **values)).fields == (6,)


# --- The files ---


@pytest.mark.parametrize("name", script_names())
def test_files_say_what_they_do_and_use_what_they_declare(name: str) -> None:
    script = Script.load(name)
    lines = (script_folder() / f"{name}.lua").read_text().splitlines()
    code = "\n".join(line for line in lines if not line.startswith("--"))
    assert "KEYS" not in code
    assert "ARGV" not in code
    header = script.header
    declared = (*header.keys, *header.arguments, *header.each_keys, *header.each_arguments)
    assert [item for item in declared if not re.search(rf"\b{item}\b", code)] == []


def test_each_script_is_loaded_in_one_module() -> None:
    package = Path(__file__).parents[2] / "redis_cluster_kit"
    sources = {path: path.read_text() for path in package.rglob("*.py")}
    for name in script_names():
        users = [path for path, text in sources.items() if f'Script.load("{name}")' in text]
        assert len(users) <= 1, f"{name} is loaded by {users}"
    for path, text in sources.items():
        for used in re.findall(r'Script\.load\("([^"]+)"\)', text):
            assert used in script_names(), f"{path} loads {used}"


@pytest.mark.skipif(
    shutil.which("luacheck") is None, reason="no luacheck (Debian: apt-get install lua-check)"
)
def test_luacheck_finds_nothing(tmp_path: Path) -> None:
    """The composed texts: an include that looks at a script's locals shows as an unknown global."""
    shared = set[str]()
    for path in (script_folder() / "include").glob("*.lua"):
        shared |= set(re.findall(r"^local function (\w+)", path.read_text(), re.MULTILINE))
    for name in script_names():
        (tmp_path / f"{name.replace('/', '-')}.lua").write_text(Script.load(name).plain_text)
    unused = [f"211/{name}" for name in sorted(shared)]  # not every script needs all of an include
    options = ["--std", "lua51", "--read-globals", "redis", "KEYS", "ARGV", "--no-max-line-length"]
    found = subprocess.run(
        ["luacheck", str(tmp_path), *options, "--ignore", *unused, "--no-color", "-q"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout
    assert f"in {len(script_names())} files" in found.stdout
