"""Lua scripts as typed calls: a header names keys, arguments and answers, and the loader holds it to that.

The header becomes named locals in front of the body, so no body indexes KEYS or ARGV; a call names its
values, and one that is missing or too many raises before anything is sent. See `lua/README.md` for the form.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from redis_cluster_kit.errors import Execution, PersistenceFailedError

from .connection import pack
from .failures import doubtful
from .lanes import Lanes, Word

_DECLARED = re.compile(r"-- (each )?(key|arg) ([a-z_]+) \((\w+)\): (.+)")
_ANSWER = re.compile(r"-- (each )?(returns|refuses) ([a-z]+)((?: [a-z_]+)*): (.+)")
_NOTE = re.compile(r"-- (purpose|repeat|invariant|include): (.+)")
_KEY_TYPES = frozenset({"string", "hash", "zset", "set", "list", "stream"})
_READ_ARGUMENT = {"text": "{0}", "bytes": "{0}", "integer": "tonumber({0})", "flag": "({0} == '1')"}
_NO_SCRIPT = "NOSCRIPT"


class Outcome(NamedTuple):
    """A script's answer: its word, what came with it, and one outcome for each repeated group."""

    word: str
    fields: tuple[Any, ...]
    each: tuple[Outcome, ...] = ()


@dataclass(slots=True)
class Header:
    """What a script says about itself."""

    shebang: str = "#!lua"
    notes: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    keys: dict[str, str] = field(default_factory=dict[str, str])
    arguments: dict[str, str] = field(default_factory=dict[str, str])
    each_keys: dict[str, str] = field(default_factory=dict[str, str])
    each_arguments: dict[str, str] = field(default_factory=dict[str, str])
    words: dict[str, str] = field(default_factory=dict[str, str])
    """outcome word -> "returns" or "refuses" (changes nothing)"""
    each_words: dict[str, str] = field(default_factory=dict[str, str])
    fields: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """outcome word -> the names of what comes with it"""
    each_fields: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @property
    def repeats_group(self) -> bool:
        """Whether one group of keys and arguments may be repeated."""
        return bool(self.each_keys or self.each_arguments)


class Script:
    """One loaded script. Call it with its names: `await ACQUIRE(lanes, slot, runner=…, each=[…])`."""

    def __init__(self, name: str, text: str, includes: Mapping[str, str]) -> None:
        self.name = name
        self.header, self.body = _parse(name, text)
        self.included = "\n".join(
            _include(name, part, includes) for part in self.header.notes.get("include", [])
        )
        # Includes first: they cannot see the locals of the script, so they stay closed.
        self.plain_text = f"{self.included}\n{_preamble(self.header)}\n{self.body}"
        """For servers that do not know the first line."""
        self.text = f"{self.header.shebang}\n{self.plain_text}"
        self.sha = _sha(self.text)
        self.is_repeatable = self.header.notes["repeat"][0].startswith("safe")
        self._words = {word.encode(): word for word in self.header.words}
        self._each_words = {word.encode(): word for word in self.header.each_words}
        self._names = frozenset((*self.header.keys, *self.header.arguments))
        self._each_names = frozenset((*self.header.each_keys, *self.header.each_arguments))

    @classmethod
    def load(cls, name: str) -> Script:
        """Load `lua/<name>.lua`, its includes put in."""
        return _load(name)

    def in_batches(self) -> Script:
        """Return the script that makes many calls of this one, each with all its keys and arguments.

        Its answer is a list of answers. A call that stops at an error answers an empty word and the error's
        text, and the others go on; a repeated group stays empty.
        """
        twin = copy.copy(self)
        twin.plain_text = f"{self.included}\n{_one_after_the_other(self.header, self.body)}"
        twin.text = f"{self.header.shebang}\n{twin.plain_text}"
        twin.sha = _sha(twin.text)
        return twin

    def refused_without_memory(self) -> Script:
        """Return the same script for calls that a full server must refuse, although it allows others."""
        twin = copy.copy(self)
        twin.text = f"#!lua\n{self.plain_text}"
        twin.sha = _sha(twin.text)
        return twin

    async def __call__(
        self, lanes: Lanes, slot: int, *, each: Sequence[Mapping[str, Word]] = (), **values: Word
    ) -> Outcome:
        """Run it on the server of `slot`; `PersistenceFailedError` if that cannot be done."""
        keys, arguments = self.bind(values, each)
        return await self.call_in_order(lanes, slot, len(keys), *keys, *arguments)

    def in_order(self, *names: str) -> Script:
        """Check that these are the names of all keys and arguments in the header's order; return the script.

        For calls that are made with every message: `call_in_order` binds nothing.
        """
        declared = (*self.header.keys, *self.header.arguments)
        if names != declared:
            raise TypeError(f"script {self.name} takes {declared}, not {names}")
        return self

    async def call_in_order(self, lanes: Lanes, slot: int, *rest: Word) -> Outcome:
        """Run it with the number of keys, the keys and the arguments; flags are 1 and 0."""
        try:
            reply = await lanes.call_packed(
                slot, pack(("EVALSHA", self.sha, *rest)), repeat=self.is_repeatable
            )
        except PersistenceFailedError as error:
            if _NO_SCRIPT not in error.detail:
                raise
            may_have_run = error.execution is Execution.UNKNOWN  # before the server forgot the script
            reply = await self._send_text(lanes, slot, rest, may_have_run)
        return self.read(reply)

    async def call_replicated(
        self, lanes: Lanes, slot: int, *, replicas: int, wait_ms: int, **values: Word
    ) -> tuple[Outcome, int]:
        """Run it once and wait for replicas on the same connection; return how many have what it wrote."""
        keys, arguments = self.bind(values, ())
        # The text, not its SHA: after NOSCRIPT there would be a second command to wait for.
        packed = pack(("EVAL", self.text, len(keys), *keys, *arguments))
        reply, count = await lanes.call_replicated(slot, packed, replicas, wait_ms)
        return self.read(reply), count

    async def _send_text(self, lanes: Lanes, slot: int, rest: tuple[Word, ...], may_have_run: bool) -> Any:
        try:
            return await lanes.call_packed(slot, pack(("EVAL", self.text, *rest)), repeat=self.is_repeatable)
        except PersistenceFailedError as error:
            raise doubtful(error) if may_have_run else error from error.cause

    def bind(
        self, values: Mapping[str, Word], each: Sequence[Mapping[str, Word]]
    ) -> tuple[list[Word], list[Word]]:
        """Return KEYS and ARGV; TypeError if names are missing, unknown, or there is no group to repeat."""
        _check_names(self.name, self._names, values)
        if each and not self.header.repeats_group:
            raise TypeError(f"script {self.name} has no repeated group")
        header = self.header
        keys: list[Word] = [values[name] for name in header.keys]
        arguments = [_flat(values[name]) for name in header.arguments]
        for group in each:
            _check_names(f"{self.name} (each)", self._each_names, group)
            keys += [group[name] for name in header.each_keys]
            arguments += [_flat(group[name]) for name in header.each_arguments]
        return keys, arguments

    def read(self, reply: Any) -> Outcome:
        """Turn a reply into an outcome; one the header does not name is an error."""
        if not isinstance(reply, list) or not reply:
            raise _unexpected(self.name, reply)
        word = self._words.get(reply[0])
        if word is None:
            raise _unexpected(self.name, reply[0])
        rest = reply[1:]
        if not self._each_words or self.header.words[word] == "refuses":
            return Outcome(word, tuple(rest))
        if not rest or not isinstance(rest[-1], list):
            raise _unexpected(self.name, reply)
        return Outcome(word, tuple(rest[:-1]), tuple(self._read_each(item) for item in rest[-1]))

    def _read_each(self, item: Any) -> Outcome:
        word = self._each_words.get(item[0]) if isinstance(item, list) and item else None
        if word is None:
            raise _unexpected(self.name, item)
        return Outcome(word, tuple(item[1:]))


def _sha(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def script_folder() -> Path:
    """Return where the scripts are: in the installed package, else beside it in the repository."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "lua", package.parent / "lua"):
        if folder.is_dir():
            return folder
    raise FileNotFoundError("the lua/ folder is missing from this installation of redis_cluster_kit")


def script_names() -> list[str]:
    """Return the name of every script, includes left out."""
    folder = script_folder()
    names = (path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.lua"))
    return sorted(name for name in names if not name.startswith("include/"))


@cache
def _load(name: str) -> Script:
    folder = script_folder()
    includes = {path.stem: path.read_text() for path in (folder / "include").glob("*.lua")}
    return Script(name, (folder / f"{name}.lua").read_text(), includes)


def _parse(name: str, text: str) -> tuple[Header, str]:
    header = Header()
    lines = text.splitlines()
    if not lines or not lines[0].startswith("#!lua"):
        raise ValueError(f"{name}.lua must begin with #!lua")
    header.shebang = lines[0]
    end = next((place for place, line in enumerate(lines) if place and not line.startswith("--")), len(lines))
    for line in lines[1:end]:
        _read_line(name, header, line)
    for note in ("purpose", "repeat"):
        if note not in header.notes:
            raise ValueError(f"{name}.lua says no {note}")
    if not header.notes["repeat"][0].startswith(("safe, ", "unsafe, ")):
        raise ValueError(f"{name}.lua: repeat is safe or unsafe, and says why")
    if not header.words:
        raise ValueError(f"{name}.lua returns nothing")
    if header.each_words and not header.repeats_group:
        raise ValueError(f"{name}.lua: answers for each member of a group, and no group that is repeated")
    return header, "\n".join(lines[end:]) + "\n"


def _read_line(name: str, header: Header, line: str) -> None:
    if match := _DECLARED.fullmatch(line):
        each, what, item, kind, _ = match.groups()
        known: Any = _KEY_TYPES if what == "key" else _READ_ARGUMENT
        if kind not in known:
            raise ValueError(f"{name}.lua: {kind} is no kind of {what}")
        table = header.keys if what == "key" else header.arguments
        if each:
            table = header.each_keys if what == "key" else header.each_arguments
        names = (header.keys, header.arguments, header.each_keys, header.each_arguments)
        if any(item in others for others in names) or item == "each":
            raise ValueError(f"{name}.lua names {item} twice")
        table[item] = kind
    elif match := _ANSWER.fullmatch(line):
        each, what, word, fields, _ = match.groups()
        words = header.each_words if each else header.words
        if word in words:
            raise ValueError(f"{name}.lua answers {word} twice")
        words[word] = what
        (header.each_fields if each else header.fields)[word] = tuple(fields.split())
    elif match := _NOTE.fullmatch(line):
        header.notes.setdefault(match[1], []).append(match[2])
    else:
        raise ValueError(f"{name}.lua: not a header line: {line}")


def _preamble(header: Header) -> str:
    parts = [f"local {name} = KEYS[{place}]" for place, name in enumerate(header.keys, 1)]
    parts += [
        f"local {name} = {_READ_ARGUMENT[kind].format(f'ARGV[{place}]')}"
        for place, (name, kind) in enumerate(header.arguments.items(), 1)
    ]
    if header.repeats_group:
        keys, arguments = len(header.each_keys), len(header.each_arguments)
        fields = [
            f"{name} = KEYS[{len(header.keys)} + n * {keys} + {place}]"
            for place, name in enumerate(header.each_keys, 1)
        ]
        first = len(header.arguments)
        fields += [
            f"{name} = {_READ_ARGUMENT[kind].format(f'ARGV[{first} + n * {arguments} + {place}]')}"
            for place, (name, kind) in enumerate(header.each_arguments.items(), 1)
        ]
        total = (
            f"(#KEYS - {len(header.keys)}) / {keys}"
            if keys
            else f"(#ARGV - {len(header.arguments)}) / {arguments}"
        )
        parts.append(
            f"local each = {{}} for n = 0, {total} - 1 do each[n + 1] = {{ {', '.join(fields)} }} end"
        )
    return " ".join(parts)


def _one_after_the_other(header: Header, body: str) -> str:
    names = ", ".join((*header.keys, *header.arguments))
    keys, arguments = len(header.keys), len(header.arguments)
    values = [f"KEYS[n * {keys} + {place}]" for place in range(1, keys + 1)]
    values += [
        _READ_ARGUMENT[kind].format(f"ARGV[n * {arguments} + {place}]")
        for place, kind in enumerate(header.arguments.values(), 1)
    ]
    return f"""local each = {{}}
local function one({names})
{body}end
local answers = {{}}
for n = 0, #KEYS / {keys} - 1 do
  local ok, answer = pcall(one, {", ".join(values)})
  answers[n + 1] = ok and answer or {{ '', type(answer) == 'table' and answer.err or tostring(answer) }}
end
return answers
"""


def _include(name: str, part: str, includes: Mapping[str, str]) -> str:
    if part not in includes:
        raise ValueError(f"{name}.lua includes {part}, there is no include/{part}.lua")
    return "\n".join(line for line in includes[part].splitlines() if not line.startswith("--"))


def _check_names(where: str, expected: frozenset[str], given: Mapping[str, Word]) -> None:
    if expected.symmetric_difference(given):
        missing, extra = sorted(expected - given.keys()), sorted(given.keys() - expected)
        raise TypeError(f"script {where}: missing {missing}, unknown {extra}")


def _flat(value: Word) -> Word:
    return int(value) if isinstance(value, bool) else value


def _unexpected(name: str, reply: object) -> PersistenceFailedError:
    return PersistenceFailedError(
        store="redis",
        execution=Execution.UNKNOWN,
        is_retryable=False,
        detail=f"script {name} answered {str(reply)[:80]}, which its header does not name",
    )
