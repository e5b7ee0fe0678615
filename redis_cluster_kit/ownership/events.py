"""What happens to shards and runners, as seen by one runner."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from redis_cluster_kit.identity import ShardId

logger = logging.getLogger(__name__)

_BUFFER = 10_000


@dataclass(frozen=True, slots=True)
class ShardGained:
    """This runner owns `shard` from now on, under `fence`."""

    shard: ShardId
    fence: int


@dataclass(frozen=True, slots=True)
class ShardLost:
    """This runner does not own `shard` any more. `was_clean`: it was handed off, not taken away."""

    shard: ShardId
    fence: int
    was_clean: bool
    reason: str


@dataclass(frozen=True, slots=True)
class RunnerJoined:
    """A runner is a member of the cluster from now on."""

    runner_id: str


@dataclass(frozen=True, slots=True)
class RunnerLeft:
    """A runner left, or its membership ended."""

    runner_id: str


ClusterEvent: TypeAlias = ShardGained | ShardLost | RunnerJoined | RunnerLeft


class Subscribers:
    """Hands every event to whoever listens; one that falls far behind misses some, nobody waits for it."""

    def __init__(self) -> None:
        self._streams: set[MemoryObjectSendStream[ClusterEvent]] = set()

    def publish(self, event: ClusterEvent) -> None:
        """Give the event to every listener."""
        for stream in self._streams:
            try:
                stream.send_nowait(event)
            except anyio.WouldBlock:
                logger.warning("a listener of cluster.events() is %d events behind and missed one", _BUFFER)

    async def listen(self) -> AsyncGenerator[ClusterEvent]:
        """Yield events from now on, until `close`."""
        sender, receiver = anyio.create_memory_object_stream[ClusterEvent](_BUFFER)
        self._streams.add(sender)
        try:
            with receiver:
                async for event in receiver:
                    yield event
        finally:
            self._streams.discard(sender)
            sender.close()

    def close(self) -> None:
        """End every listener's iteration after what it has not read yet."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()
