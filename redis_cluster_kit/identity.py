"""Names, ids and addresses: what they look like and how an entity finds its shard. No I/O.

The shard hash and the message id are stored formats: a change here moves every entity or loses messages.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import secrets
import socket
from dataclasses import dataclass
from typing import NamedTuple

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_MESSAGE_ID = re.compile(r"[0-9a-f]{12}-(?:0|[1-9][0-9]{0,18})", re.ASCII)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,4}", re.ASCII)
_UNCLEAN = re.compile(r"[^A-Za-z0-9_.-]+", re.ASCII)
_LONGEST_RUNNER_NAME = 51
_LONGEST_ENTITY_ID = 512


def check_name(kind: str, value: object) -> str:
    """Return `value` if it may name a namespace, group, type, rpc or singleton; `kind` says which."""
    if not isinstance(value, str):
        raise TypeError(f"a {kind} name must be text, got {type(value).__name__}")
    if _NAME.fullmatch(value) is None:
        raise ValueError(f"a {kind} name is 1 to 64 of the characters A-Z a-z 0-9 _ . -, got {_shown(value)}")
    return value


def check_entity_id(value: object) -> str:
    """Return `value` if it may be an entity's id: text of 1 to 512 UTF-8 bytes without control characters."""
    if not isinstance(value, str):
        raise TypeError(f"an entity id must be text, got {type(value).__name__}: write str(x)")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"an entity id must be valid Unicode, got {_shown(value)}") from error
    if not 1 <= size <= _LONGEST_ENTITY_ID:
        raise ValueError(f"an entity id has 1 to {_LONGEST_ENTITY_ID} UTF-8 bytes, got {size}")
    if not value.isprintable() and any(_is_control(character) for character in value):
        raise ValueError(f"an entity id has no control characters, got {_shown(value)}")
    return value


def _is_control(character: str) -> bool:
    """C0, DEL and C1, as Unicode's category Cc."""
    return character < " " or "\x7f" <= character <= "\x9f"


def _shown(value: str) -> str:
    return f"{value!a}" if len(value) <= 80 else f"{value[:80]!a}… ({len(value)} characters)"


class ShardId(NamedTuple):
    """One shard: the unit of ownership. Sorts by group, then number; `str()` is `default:42`."""

    group: str
    number: int

    def __str__(self) -> str:
        return f"{self.group}:{self.number}"

    @classmethod
    def parse(cls, text: str) -> ShardId:
        """Read `str(shard)` back; ValueError if it is not one."""
        group, colon, number = text.partition(":")
        if not colon or _NAME.fullmatch(group) is None or _NUMBER.fullmatch(number) is None:
            raise ValueError(f"a shard is written group:number, like default:42, got {_shown(text)}")
        return cls(group, int(number))


@dataclass(frozen=True, slots=True)
class EntityAddress:
    """Where an entity is: its type's stored name, its id, its shard. Hashable, and the same on every pod."""

    type: str
    id: str
    shard: ShardId

    def __str__(self) -> str:
        return f"{self.type}/{self.id}"


def shard_number(type: str, id: str, count: int) -> int:
    """Return the shard of an entity among `count`: the same in every process, release and language."""
    digest = hashlib.blake2b(f"{type}\0{id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % count


def new_nonce() -> str:
    """Return 12 random hex digits: what tells this process, or this grant, from every other."""
    return secrets.token_hex(6)


def new_runner_id(name: str | None, nonce: str) -> str:
    """Return `<name or host, cleaned and cut>-<nonce>`: readable, unique, and itself a valid name."""
    cleaned = _UNCLEAN.sub("-", socket.gethostname() if name is None else name).strip("-")
    return f"{cleaned[:_LONGEST_RUNNER_NAME] or 'runner'}-{nonce}"


class MessageIds:
    """Hands out `<nonce>-<n>`, unique as long as the nonce is; safe to call from several threads."""

    def __init__(self, nonce: str) -> None:
        self._prefix = f"{nonce}-"
        self._counter = itertools.count(1)

    def next(self) -> str:
        """Return the next id."""
        return f"{self._prefix}{next(self._counter)}"


class MessageAddress(NamedTuple):
    """What a public message id says: the stored id, and where its mailbox is."""

    id: str
    group: str
    type: str
    entity_id: str


def public_message_id(id: str, group: str, type: str, entity_id: str) -> str:
    """Return the text a receipt shows: any process can find the message by it."""
    return f"{id}@{group}:{type}:{entity_id}"


def parse_message_id(text: str) -> MessageAddress:
    """Read `public_message_id` back; ValueError if it is not one."""
    stored_id, _, rest = text.partition("@")
    parts = rest.split(":", 2)
    if _MESSAGE_ID.fullmatch(stored_id) is None or len(parts) != 3:
        raise ValueError(f"a message id is written <id>@<group>:<type>:<entity id>, got {_shown(text)}")
    group, type_name, entity_id = parts
    check_name("shard group", group)
    check_name("type", type_name)
    return MessageAddress(stored_id, group, type_name, check_entity_id(entity_id))
