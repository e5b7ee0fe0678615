"""What a stale owner tries, step by step, on the real scripts: each attack returns the rows it left behind.

Two owners, one shard, no chance: the steps are always the same. `main` runs one attack in a child, on
whatever kit is on its path.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.ownership import FenceKeys, RegisteredFences
from redis_cluster_kit.redis_access import Keyspace, Lanes, RedisUrl, Script
from redis_cluster_kit.settings import DatabaseSettings, RedisSettings
from redis_cluster_kit.storage import Database, FenceRegister
from redis_cluster_kit.testing import Verdict, emit, together
from redis_cluster_kit.testing.checkers import Commit, Install, Load, no_stale_commit, takeover_state

SHARD = ShardId("default", 0)
SHARED = "shared"
ACQUIRE, RELEASE, WRITE = (
    Script.load("lease/acquire"),
    Script.load("lease/release"),
    Script.load("state/write"),
)
Rows = dict[str, list[dict[str, Any]]]


@dataclass
class Owner:
    """One runner's way to the shard, without the runner."""

    name: str
    lanes: Lanes
    keyspace: Keyspace
    register: FenceRegister
    rows: Rows
    keys: FenceKeys = field(init=False)

    def __post_init__(self) -> None:
        self.keys = FenceKeys(self.lanes, self.keyspace, self.name, f"n-{self.name}", colocated=True)

    async def lease(self) -> None:
        await self._lease(ACQUIRE, ttl=60_000)

    async def unlease(self) -> None:
        await self._lease(RELEASE)

    async def _lease(self, script: Script, **values: int) -> None:
        each = [{"lease": self.keyspace.lease(SHARD)}]
        slot = self.keyspace.slot(SHARD)
        await script(self.lanes, slot, each=each, runner=self.name, **values)

    async def grant(self) -> int:
        granted = await self.register.grant(SHARD.group, {SHARD.number: 1}, self.keys.nonce, timeout=5)
        return granted[SHARD.number]

    async def install(self, fence: int) -> str:
        invoked = Clock.boot()
        word = (await self.keys.install({SHARD: fence}))[SHARD].word
        if word == "installed":
            self._row("installs", fence, invoked)
        return word

    async def establish(self) -> int:
        """Grant and install as a runner does."""
        invoked = Clock.boot()
        fences = await RegisteredFences(self.register, self.keys).establish([SHARD], timeout=5)
        self._row("installs", fences[SHARD], invoked)
        return fences[SHARD]

    async def load(self, fence: int) -> int:
        invoked = Clock.boot()
        slot, state = self.keyspace.slot(SHARD), self.keyspace.state(SHARD, SHARED)
        version = int(await self.lanes.call(slot, "HGET", state, "v") or 0)
        load = {"resource": str(SHARD), "fence": fence, "version": version, "invoked_at": invoked}
        self.rows["loads"].append(load)
        return version

    async def write(self, fence: int, version: int, name: str = "") -> str:
        """Write a state of this owner's own, so that only the fence stands in the way, or a named one."""
        invoked = Clock.boot()
        answer = await WRITE(
            self.lanes,
            self.keyspace.slot(SHARD),
            fence=self.keyspace.fence(SHARD),
            state=self.keyspace.state(SHARD, name or self.name),
            number=str(fence),
            nonce=self.keys.nonce,
            version=str(version),
            schema=1,
            content=self.name,
            age=0,
            keep=0,
        )
        if answer.word == "ok":
            self._row("commits", fence, invoked, version=version)
        return answer.word

    def _row(self, table: str, fence: int, invoked: float, **more: int) -> None:
        times = {"invoked_at": invoked, "completed_at": Clock.boot()}
        row = {"resource": str(SHARD), "fence": fence, "nonce": self.keys.nonce}
        self.rows[table].append(row | times | more)


async def write_after_a_newer_install(stale: Owner, new: Owner) -> None:
    """The plainest one: a runner that slept writes with the fence it had."""
    await stale.lease()
    old = await stale.establish()
    await stale.write(old, 1)
    await stale.unlease()
    await new.lease()
    fence = await new.establish()
    await stale.write(old, 2)
    await new.write(fence, 2)


async def install_an_equal_fence(stale: Owner, new: Owner) -> None:
    """A register restored from a dump grants a fence again: Redis must not take it from another owner."""
    await stale.lease()
    await stale.install(5)
    await stale.write(5, 1)
    await stale.unlease()
    await new.lease()
    if await new.install(5) != "installed":
        await new.install(6)
    await new.write(5, 2)
    await new.write(6, 2)


async def write_under_a_fence_not_installed(stale: Owner, new: Owner) -> None:
    """A granted fence counts from its install on: used before, it leaves the older owner able to write."""
    await stale.lease()
    old = await stale.establish()
    await stale.unlease()
    await new.lease()
    granted = await new.grant()
    await new.write(granted, 1)
    await stale.write(old, 2)
    await new.install(granted)
    await new.write(granted, 3)


async def install_late_after_a_release(stale: Owner, new: Owner) -> None:
    """A grant's install is held up on its way; meanwhile another owner came, wrote, and went cleanly."""
    await stale.lease()
    held_up = await stale.grant()
    await stale.unlease()
    await new.lease()
    fence = await new.establish()
    await new.write(fence, 1)
    await new.keys.close({SHARD: fence})
    await new.unlease()
    await stale.lease()
    await stale.install(held_up)
    await stale.write(held_up, 2)


async def write_between_read_and_install(stale: Owner, new: Owner) -> None:
    """A new owner reads what is there; whatever the older one writes from then on would be overwritten."""
    await stale.lease()
    old = await stale.grant()
    await stale.install(old)
    await stale.write(old, 1, SHARED)
    await stale.unlease()
    await new.lease()
    fence = await new.establish()
    version = await new.load(fence)
    await stale.write(old, 2, SHARED)
    await new.keys.install({SHARD: fence})
    await new.write(fence, version + 1, SHARED)


ATTACKS: dict[str, Callable[[Owner, Owner], Awaitable[None]]] = {
    attack.__name__: attack
    for attack in (
        write_after_a_newer_install,
        install_an_equal_fence,
        write_under_a_fence_not_installed,
        install_late_after_a_release,
        write_between_read_and_install,
    )
}


async def run(attack: str, redis: str, database: str, namespace: str) -> Rows:
    """Run one attack and return its rows."""
    rows: Rows = {"installs": [], "commits": [], "loads": []}
    async with owners(redis, database, namespace, rows) as (stale, new):
        await ATTACKS[attack](stale, new)
        # The lease goes as it does when its time is up; the fence stays.
        await new.unlease()
        await stale.unlease()
    return rows


@asynccontextmanager
async def owners(redis: str, database: str, namespace: str, rows: Rows) -> AsyncIterator[tuple[Owner, Owner]]:
    async with (
        Lanes(RedisUrl.parse(redis), RedisSettings()) as lanes,
        Database(database, DatabaseSettings(), ttl=timedelta(seconds=5)) as opened,
    ):
        await opened.prepare(True)
        register, keyspace = FenceRegister(opened, namespace), Keyspace(namespace, 1)
        stale, new = (Owner(name, lanes, keyspace, register, rows) for name in ("stale", "new"))
        yield stale, new


def judge(rows: Rows) -> Verdict:
    """I1 of the commits, I8 of the loads."""
    commits = [Commit(**row) for row in rows["commits"]]
    return together(
        no_stale_commit([Install(**row) for row in rows["installs"]], commits),
        takeover_state(commits, [Load(**row) for row in rows["loads"]]),
    )


async def main(text: str) -> None:
    """Run the attacks named, each in a namespace of its own, and tell what each left behind."""
    options = json.loads(text)
    for attack in options["attacks"]:
        place = f"{options['namespace']}-{list(ATTACKS).index(attack)}"
        emit("done", attack=attack, rows=await run(attack, options["redis"], options["database"], place))
