"""Broadcasts: one message to every entity of a type that is in memory anywhere, and how many took it.

Each runner is asked through its inbox and puts the message into the mailboxes of its own entities.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from redis_cluster_kit.delivery import Mailboxes, Parcel, Replies
from redis_cluster_kit.errors import KitError
from redis_cluster_kit.identity import MessageIds

from .activation import EntityActivation
from .host import EntityHost

logger = logging.getLogger(__name__)

_REPEAT_AFTER = 0.5
_REMEMBERED = 1_000
_SWEEP = 500

Post = Callable[..., Awaitable[None]]


class Broadcasts:
    """Sends broadcasts for one runner, and carries out those of others."""

    def __init__(
        self,
        mailboxes: Mailboxes,
        replies: Replies,
        ids: MessageIds,
        post: Post,
        hosts_of: Callable[[str], Iterable[str]],
    ) -> None:
        self._mailboxes = mailboxes
        self._replies = replies
        self._ids = ids
        self._post = post
        self._hosts_of = hosts_of
        self._done: dict[str, asyncio.Task[int]] = {}
        self.host: EntityHost | None = None

    async def send(self, type: str, message: bytes, *, timeout: float) -> int:
        """Ask every runner that serves the type; return how many entities took the message."""
        id = self._ids.next()
        counts = await asyncio.gather(
            *(
                self._ask(runner_id, f"{id}/{runner_id}", type, message, timeout)
                for runner_id in self._hosts_of(type)
            )
        )
        return sum(counts)

    async def _ask(self, runner_id: str, id: str, type: str, message: bytes, timeout: float) -> int:
        """Ask one runner, again if it does not answer; one that never does counts for nothing."""
        future = self._replies.expect(id)
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            while True:
                await self._post(
                    runner_id, 0, "k", "b", "i", id, "r", str(self._replies.place), "t", type, "m", message
                )
                left = deadline - asyncio.get_running_loop().time()
                done, _ = await asyncio.wait((future,), timeout=min(_REPEAT_AFTER, left))
                if done:
                    return int(future.result())
                if left <= _REPEAT_AFTER:
                    logger.warning("runner %s did not answer a broadcast to %s", runner_id, type)
                    return 0
        finally:
            self._replies.forget(id, future)

    def on_nudge(self, fields: list[bytes]) -> None:
        """Carry one out, once: k b i id r reply_to t type m envelope."""
        id, reply_to, type = (fields[place].decode() for place in (3, 5, 7))
        if id not in self._done:
            while len(self._done) >= _REMEMBERED:
                del self._done[next(iter(self._done))]
            self._done[id] = asyncio.create_task(self._carry_out(type, fields[9]))
        self._done[id].add_done_callback(lambda done: self._report(done, reply_to, id))

    def _report(self, done: asyncio.Task[int], reply_to: str, id: str) -> None:
        if not done.cancelled() and done.exception() is None:
            self._replies.post(reply_to, id, str(done.result()).encode())

    async def _carry_out(self, type: str, message: bytes) -> int:
        if self.host is None:
            return 0
        taken = 0
        residents = self.host.residents.of_type(type)
        for start in range(0, len(residents), _SWEEP):
            results = await asyncio.gather(
                *(self._put(activation, message) for activation in residents[start : start + _SWEEP])
            )
            taken += sum(results)
        return taken

    async def _put(self, activation: EntityActivation, message: bytes) -> bool:
        assert self.host is not None
        shard = activation.address.shard
        parcel = Parcel(
            group=shard.group,
            number=shard.number,
            member=activation.member,
            id=self._ids.next(),
            message=message,
            capacity=activation.definition.capacity or self.host.limits.capacity,
            is_nudged_always=activation.definition.concurrency > 1,
        )
        not_after = self.host.clock.server_ms() + self._mailboxes.windows["g"]
        try:
            return (await self._mailboxes.put(parcel, not_after)).word == "appended"
        except KitError as error:
            logger.warning("a broadcast did not reach %s: %s", activation.address, error)
            return False
