"""What a shard wants served: the types it activated, and what its owner does not know.

A message nobody here knows waits in its place, so that a rolling deploy buries nothing; what the shard wants
is noted beside its fence and steers placement.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import anyio

from redis_cluster_kit.codec import encode
from redis_cluster_kit.delivery import FROM_THE_START, DeadRecord, failed_reply
from redis_cluster_kit.errors import MalformedMessageError

from .commit import MessageGone
from .in_hand import Leaving

if TYPE_CHECKING:
    from .shard_host import ShardHost

_NOTE_AGAIN_MS = 60_000
FORGOTTEN_AFTER_MS = 600_000
_LOOK_EVERY = 1.0


class UnknownTypes:
    """The wants of one owned shard."""

    def __init__(self, around: ShardHost) -> None:
        self._around = around
        self._wants: dict[str, int] = {}
        self._is_noted = True
        self._members: dict[str, set[str]] = {}
        """The entities of types that are not known here; those of known types wait in their activations."""
        self._seen: set[str] = set()
        """Those of these types that the poll has met since its last scan began."""
        self._waiters: Counter[str] = Counter()
        self.waiting: dict[str, int] = {}
        """What is not known here, with the server milliseconds at which somebody alive last knew it."""

    def wants(self, name: str) -> None:
        """Note that the shard needs a type, or an rpc as type/rpc."""
        now = self._around.server_ms()
        if now - self._wants.get(name, 0) > _NOTE_AGAIN_MS:
            self._wants[name] = now
            self._is_noted = False

    def saw(self, name: str, member: str = "") -> None:
        """Note that something waits for what nobody here serves."""
        if name not in self.waiting:
            self.waiting[name] = self._around.server_ms()
            self._around.counters.unknown += 1
        if member:
            self._members.setdefault(name, set()).add(member)
            self._seen.add(name)
        self.wants(name)

    def scanned(self) -> None:
        """A scan of what waits has ended: types it has not met wait no more, they were withdrawn."""
        for name in self._members.keys() - self._seen:
            del self._members[name]
            self.waiting.pop(name, None)
        self._seen.clear()

    async def note(self) -> None:
        """Write what is wanted beside the fence, if that is news; bury what nobody has known for long."""
        now = self._around.server_ms()
        for name in list(self.waiting):
            self.wants(name)
            if self._around.host.somebody_serves((name,)):
                self.waiting[name] = now
            elif name in self._members and now - self.waiting[name] > FORGOTTEN_AFTER_MS:
                await self._bury_all(name)
        if self._is_noted:
            return
        self._is_noted = True
        self._wants = {name: when for name, when in self._wants.items() if now - when < FORGOTTEN_AFTER_MS}
        try:
            await self._around.host.note_wants(self._around.shard, self._around.owned.fence, self._wants)
        except BaseException:
            self._is_noted = False
            raise
        call = self._around.host.call_for_placement
        if call is not None and any(self._around.host.somebody_serves((name,)) for name in self.waiting):
            await call()

    async def wait(self, *names: str, look: Callable[[], Awaitable[None]]) -> None:
        """Return when no live runner has known one of these for ten minutes; `look` may end it before."""
        for name in names:
            self.saw(name)
        self._waiters.update(names)
        try:
            while not self._is_forgotten(names):
                with anyio.move_on_after(_LOOK_EVERY):
                    await self._around.ending.wait()
                    raise Leaving
                await look()
        finally:
            self._waiters.subtract(names)
            for name in names:
                if not self._waiters[name]:
                    self.waiting.pop(name, None)

    def _is_forgotten(self, names: Iterable[str]) -> bool:
        now = self._around.server_ms()
        return any(now - self.waiting.get(name, now) > FORGOTTEN_AFTER_MS for name in names)

    async def _bury_all(self, type: str) -> None:
        """Bury what waits for a type that no live runner serves."""
        around = self._around
        reason = f"no live runner knows the type {type!r}"
        error = MalformedMessageError(detail=reason)
        for member in self._members.pop(type, set()):
            while True:
                message, _ = await around.mailboxes.claim(
                    around.shard, around.fence, member, after=FROM_THE_START
                )
                if message is None:
                    break
                record = DeadRecord(
                    message=message.content,
                    reason=reason,
                    buried_ms=around.server_ms(),
                    runner_id=around.runner_id,
                )
                with contextlib.suppress(MessageGone):  # withdrawn in this moment
                    await around.committer.fail(
                        member, message, most=0, record=encode(record, limit=None), reply=failed_reply(error)
                    )
                    around.counters.buried += 1
        self.waiting.pop(type, None)
