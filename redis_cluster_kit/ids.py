"""Snowflakes for one runner: leases a machine id, keeps it, and makes ids under it.

Which timestamps may be used is written down before their first use, in the database or, without one, in
Redis; so neither a clock set back nor a wipe repeats an id.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.errors import Execution, FencedError, PersistenceFailedError
from redis_cluster_kit.redis_access import Keyspace, Lanes, Script
from redis_cluster_kit.snowflake import Snowflake, SnowflakeGenerator
from redis_cluster_kit.storage import MachineIdLease, MachineIds

logger = logging.getLogger(__name__)

CLAIM = Script.load("machine_id/claim")
RENEW = Script.load("machine_id/renew")
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A machine id and the timestamps its holder may issue: above `floor_ms`, up to `ceiling_ms`."""

    machine_id: int
    floor_ms: int
    ceiling_ms: int


class MachineIdSource(Protocol):
    """Where machine ids are leased from."""

    async def claim(self, now_ms: int) -> Reservation: ...
    async def renew(self, now_ms: int) -> int: ...
    async def release(self) -> None: ...


class DatabaseMachineIds:
    """Machine ids of the database."""

    def __init__(self, ids: MachineIds, nonce: str, lease: timedelta, timeout: float) -> None:
        self._ids = ids
        self._nonce = nonce
        self._duration = lease
        self._timeout = timeout
        self._lease: MachineIdLease | None = None

    async def claim(self, now_ms: int) -> Reservation:
        """Take a free one."""
        lease = await self._ids.claim(self._nonce, now_ms, self._duration, timeout=self._timeout)
        self._lease = lease
        return Reservation(lease.machine_id, lease.floor_ms, lease.ceiling_ms)

    async def renew(self, now_ms: int) -> int:
        """Return the new ceiling."""
        assert self._lease is not None
        return await self._ids.renew(self._lease, now_ms, timeout=self._timeout)

    async def release(self) -> None:
        """Give it back."""
        if self._lease is not None:
            await self._ids.release(self._lease, timeout=self._timeout)


class RedisMachineIds:
    """Machine ids of Redis alone; a young or wiped Redis grants none until older ones have run out."""

    def __init__(
        self, lanes: Lanes, keyspace: Keyspace, nonce: str, ttl: timedelta, margin: timedelta
    ) -> None:
        self._lanes = lanes
        self._keyspace = keyspace
        self._nonce = nonce
        self._span = ttl // _MS
        self._wait = (ttl + margin) // _MS
        self._id: int | None = None

    async def claim(self, now_ms: int) -> Reservation:  # noqa: ARG002 - the server's own time counts here
        """Take a free one."""
        outcome = await CLAIM(
            self._lanes,
            self._keyspace.home_slot,
            machines=self._keyspace.machines,
            born=self._keyspace.born,
            nonce=self._nonce,
            span=self._span,
            wait=self._wait,
        )
        if outcome.word != "claimed":
            left = f"; ask again in {int(outcome.fields[0])} ms" if outcome.word == "early" else ""
            raise PersistenceFailedError(
                store="machine ids",
                execution=Execution.REFUSED,
                detail=f"no machine id to be had ({outcome.word}){left}",
            )
        number, floor, ceiling = (int(field) for field in outcome.fields)
        self._id = number
        return Reservation(number, floor, ceiling)

    async def renew(self, now_ms: int) -> int:  # noqa: ARG002
        """Return the new ceiling."""
        assert self._id is not None
        outcome = await RENEW(
            self._lanes,
            self._keyspace.home_slot,
            machines=self._keyspace.machines,
            id=self._id,
            nonce=self._nonce,
            span=self._span,
        )
        if outcome.word == "lost":
            raise FencedError(shard=f"machine id {self._id}", store="redis", detail="it is not ours any more")
        return int(outcome.fields[0])

    async def release(self) -> None:
        """Nothing to do: the reservation ends by itself."""


class IdMaker:
    """Makes this runner's snowflakes; `keep` runs as long as the runner does."""

    def __init__(self, source: MachineIdSource, clock: Clock, lease: timedelta) -> None:
        self._source = source
        self._clock = clock
        self._every = lease.total_seconds() / 3
        self._generator: SnowflakeGenerator | None = None
        self.trouble = ""
        """Why no machine id is held or renewed at the moment."""

    def next(self) -> Snowflake:
        """Return the next id; `PersistenceFailedError` while no machine id is held."""
        if self._generator is None:
            raise PersistenceFailedError(
                store="machine ids",
                execution=Execution.NOT_EXECUTED,
                detail=self.trouble or "no machine id is held yet",
            )
        return self._generator.next()

    async def keep(self) -> None:
        """Claim a machine id and renew it for ever."""
        while True:
            pause = self._every
            try:
                await self.refresh()
            except FencedError:
                self._generator = None
                continue
            except PersistenceFailedError as error:
                if not self.trouble:
                    logger.warning("machine id: %s", error)
                self.trouble = str(error)
                pause = min(1.0, self._every)
            else:
                self.trouble = ""
            await anyio.sleep(pause)

    async def refresh(self) -> None:
        """Claim, or renew what is held."""
        if self._generator is not None:
            self._generator.extend(await self._source.renew(self._clock.now_ms()))
            return
        taken = await self._source.claim(self._clock.now_ms())
        self._generator = SnowflakeGenerator(
            taken.machine_id, taken.floor_ms, taken.ceiling_ms, self._clock.now_ms
        )

    async def release(self) -> None:
        """Give the machine id back, as far as its store can be reached."""
        self._generator = None
        try:
            await self._source.release()
        except PersistenceFailedError as error:
            logger.warning("the machine id was not given back, its lease ends by itself: %s", error)
