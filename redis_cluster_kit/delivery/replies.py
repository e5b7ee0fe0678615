"""Replies: what a handler's answer looks like on the wire, and the asks that wait for one in this process.

A reply is kept beside the callee's markers, which is what counts; that it is also posted to the asker's
inbox only makes it quick.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import msgspec

from redis_cluster_kit.codec import MAX_DEPTH, check_size, decode, encode
from redis_cluster_kit.errors import ClusterError, EntityError, MalformedMessageError, declared_fields
from redis_cluster_kit.redis_access import Keyspace, Lanes

RESULT, DECLARED, FAILED = 0, 1, 2
_LENGTH = 10_000


class Reply(msgspec.Struct, array_like=True, frozen=True):
    """One answer: a result, a declared error as [code, fields], or a `ClusterError` as its wire form."""

    kind: int
    body: msgspec.Raw


class ReplyPlace(NamedTuple):
    """Where an asker reads its replies."""

    partition: int
    runner_id: str

    def __str__(self) -> str:
        return f"{self.partition}:{self.runner_id}"

    @classmethod
    def parse(cls, text: str) -> ReplyPlace:
        """Read `str(place)` back; `MalformedMessageError` if it is not one."""
        partition, _, runner_id = text.partition(":")
        if not partition.isdecimal() or not runner_id:
            raise MalformedMessageError(detail=f"{text[:80]!r} is no place for a reply")
        return cls(int(partition), runner_id)


def result_reply(result: object, *, limit: int, max_depth: int = MAX_DEPTH) -> bytes:
    """Return the reply that carries a result; `PayloadTooLargeError` above the limit."""
    data = encode((RESULT, result), limit=None, max_depth=max_depth + 1)
    check_size(data, limit)
    return data


def declared_reply(error: EntityError, *, limit: int, max_depth: int = MAX_DEPTH) -> bytes:
    """Return the reply that carries a declared error."""
    data = encode((DECLARED, (error.code, error.fields)), limit=None, max_depth=max_depth + 2)
    check_size(data, limit)
    return data


def failed_reply(error: ClusterError) -> bytes:
    """Return the reply that carries an error of the kit."""
    return encode((FAILED, error.to_wire()), limit=None, max_depth=500)


def open_reply(data: bytes, result: Any, raises: dict[str, type[EntityError]]) -> Any:
    """Return the result that a reply holds, or raise the error it holds."""
    reply = decode(data, Reply, max_depth=500)
    if reply.kind == RESULT:
        return decode(reply.body, result)
    if reply.kind == DECLARED:
        code, fields = decode(reply.body, tuple[str, dict[str, msgspec.Raw]])
        raise _declared(code, fields, raises)
    raise ClusterError.from_wire(decode(reply.body, Any, max_depth=500))


def _declared(
    code: str, fields: dict[str, msgspec.Raw], raises: dict[str, type[EntityError]]
) -> EntityError | MalformedMessageError:
    kind = raises.get(code)
    if kind is None:
        return MalformedMessageError(
            detail=f"the answer is the error {code!r}, which this side does not declare"
        )
    hints = declared_fields(kind)
    values = {name: decode(value, hints[name]) for name, value in fields.items() if name in hints}
    try:
        return kind(**values)
    except TypeError as error:
        return MalformedMessageError(
            detail=f"the error {code!r} does not fit its class: {error}", cause=error
        )


class Replies:
    """The asks of this process that wait, and the way to other processes'."""

    def __init__(self, lanes: Lanes, keyspace: Keyspace, place: ReplyPlace) -> None:
        self._lanes = lanes
        self._keyspace = keyspace
        self.place = place
        self._waiting: dict[str, list[asyncio.Future[bytes]]] = {}

    def expect(self, id: str) -> asyncio.Future[bytes]:
        """Return a future that gets the reply to `id`; `forget` it when nobody waits any more."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(id, []).append(future)
        return future

    def forget(self, id: str, future: asyncio.Future[bytes]) -> None:
        """Stop waiting."""
        futures = self._waiting.get(id)
        if futures is not None and future in futures:
            futures.remove(future)
            if not futures:
                del self._waiting[id]

    def resolve(self, id: str, reply: bytes) -> None:
        """Hand a reply to whoever waits for it here."""
        for future in self._waiting.pop(id, ()):
            if not future.done():
                future.set_result(reply)

    def on_nudge(self, fields: list[bytes]) -> None:
        """Take a reply out of the inbox: k r, i id, b reply."""
        self.resolve(fields[3].decode(), fields[5])

    def post(self, to: str, id: str, reply: bytes) -> None:
        """Send a reply on its way; nobody waits for that, and a lost one is looked up by its asker."""
        place = ReplyPlace.parse(to)
        if place == self.place:
            self.resolve(id, reply)
            return
        if not 0 <= place.partition < self._keyspace.partitions:
            return
        self._lanes.send(
            self._keyspace.slots[place.partition],
            *("XADD", self._keyspace.inbox(place.runner_id, place.partition)),
            *("NOMKSTREAM", "MAXLEN", "~", _LENGTH, "*", "k", "r", "i", id, "b", reply),
        )
