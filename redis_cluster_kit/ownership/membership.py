"""Who is in the cluster, by the data Redis' clock, and what each runner serves."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.redis_access import Keyspace, Lanes, Script

JOIN = Script.load("membership/join")
HEARTBEAT = Script.load("membership/heartbeat")
LEAVE = Script.load("membership/leave")


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner says of itself. Fields are only ever added, with a default."""

    runner_id: str
    host: str = ""
    boot_id: str = ""
    """The host's boot: two members with different ones are on different hosts."""
    pid: int = 0
    weight: float = 1.0
    hosting: bool = True
    draining: bool = False
    serves: dict[str, list[str]] = {}
    """shard group -> types served in it"""
    envelope: int = 1


class Membership:
    """This runner's view of the members; `refresh` and `heartbeat` bring it up to date."""

    def __init__(
        self, lanes: Lanes, keyspace: Keyspace, clock: Clock, member: Member, ttl: timedelta
    ) -> None:
        self.lanes = lanes
        self._keyspace = keyspace
        self._clock = clock
        self._ttl_ms = ttl // timedelta(milliseconds=1)
        self.me = member
        self.members: Mapping[str, Member] = {}
        self._version = ""

    async def join(self) -> None:
        """Become a member, or say something new of oneself."""
        await JOIN(
            self.lanes,
            self._keyspace.home_slot,
            members=self._keyspace.members,
            alive=self._keyspace.alive,
            version=self._keyspace.version,
            runner=self.me.runner_id,
            description=msgspec.json.encode(self.me),
            ttl=self._ttl_ms,
        )

    async def heartbeat(self) -> bool:
        """Prolong the membership, joining again if it was lost; return whether the members changed."""
        changed = await self._look(extend=True)
        if changed is None:
            await self.join()
            changed = await self._look(extend=True)
        return bool(changed)

    async def refresh(self) -> bool:
        """Look without prolonging; return whether the members changed."""
        return bool(await self._look(extend=False))

    async def drain(self) -> None:
        """Say that this runner gives its shards away."""
        self.me = msgspec.structs.replace(self.me, draining=True)
        await self.join()

    async def leave(self) -> None:
        """Stop being a member."""
        await LEAVE(
            self.lanes,
            self._keyspace.home_slot,
            members=self._keyspace.members,
            alive=self._keyspace.alive,
            version=self._keyspace.version,
            runner=self.me.runner_id,
        )

    async def _look(self, *, extend: bool) -> bool | None:
        sent = Clock.boot()
        outcome = await HEARTBEAT(
            self.lanes,
            self._keyspace.home_slot,
            members=self._keyspace.members,
            alive=self._keyspace.alive,
            version=self._keyspace.version,
            runner=self.me.runner_id,
            ttl=self._ttl_ms,
            extend=extend,
            known=self._version,
        )
        if outcome.word == "absent":
            return None
        self._clock.observe(outcome.fields[1] / 1000, sent, Clock.boot())
        if outcome.word == "same":
            return False
        pairs = outcome.fields[2]
        found = {pairs[place].decode(): read_member(pairs[place + 1]) for place in range(0, len(pairs), 2)}
        self.members = {name: member for name, member in sorted(found.items()) if member is not None}
        self._version = outcome.fields[0].decode()
        return True


def read_member(data: bytes) -> Member | None:
    """Return what a runner says of itself, None if nobody can read it: nobody can place shards there."""
    try:
        return msgspec.json.decode(data, type=Member)
    except msgspec.DecodeError:
        return None
