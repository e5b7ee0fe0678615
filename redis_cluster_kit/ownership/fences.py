"""Fences: the number that makes a new owner's writes count and every older owner's fail.

With a database the register orders them and Redis installs them; without one Redis alone does both. Reading
and noting what stands beside an installed fence is done here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.errors import Execution, FencedError, PersistenceFailedError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.redis_access import Keyspace, Lanes, Outcome, Script

INSTALL = Script.load("fence/install")
GROW = Script.load("fence/grow")
CHECK = Script.load("fence/check")
CLOSE = Script.load("fence/close")
WANT = Script.load("fence/want")
SURVEY = Script.load("fence/survey")


class FenceRegister(Protocol):
    """Where the order of fences is kept for good; storage has one."""

    async def grant(
        self, group: str, proposals: Mapping[int, int], nonce: str, *, timeout: float
    ) -> dict[int, int]:
        """Return a new fence for each shard: above every one granted before, at least the one proposed."""
        ...

    async def read(self, group: str, shards: Iterable[int], *, timeout: float) -> dict[int, tuple[int, str]]:
        """Return the fence and nonce of those shards that were ever granted."""
        ...


class FenceSource(Protocol):
    """Gives a runner's leased shards their fences."""

    async def establish(self, shards: Iterable[ShardId], *, timeout: float) -> dict[ShardId, int]:
        """Return the shards whose new fence is installed; those whose lease was lost are missing."""
        ...

    async def can_grant(self, *, timeout: float) -> bool:
        """Return whether fences could be had now, as far as one can see."""
        ...


@dataclass(frozen=True, slots=True)
class Installed:
    """What stands beside a shard's installed fence."""

    fence: int
    runner_id: str
    ended: int | None
    wants: Mapping[str, int]
    """Types the shard wants served, with the server milliseconds they were last wanted."""


class FenceKeys:
    """The installed fences in the data Redis, asked partition by partition at once."""

    def __init__(
        self, lanes: Lanes, keyspace: Keyspace, runner_id: str, nonce: str, *, colocated: bool
    ) -> None:
        self._lanes = lanes
        self._keyspace = keyspace
        self.runner_id = runner_id
        self.nonce = nonce
        self._colocated = colocated

    async def install(self, fences: Mapping[ShardId, int]) -> dict[ShardId, Outcome]:
        """Install fences; each answer is `installed`, `lost` or `behind`."""
        return await self._each(
            INSTALL,
            {
                shard: {
                    "lease": self._keyspace.lease(shard),
                    "fence": self._keyspace.fence(shard),
                    "number": str(number),
                }
                for shard, number in fences.items()
            },
            runner=self.runner_id,
            nonce=self.nonce,
            colocated=self._colocated,
            with_inbox=True,
        )

    async def grow(self, shards: Iterable[ShardId]) -> dict[ShardId, Outcome]:
        """Grant and install without a database; each answer is `installed` or `lost`."""
        return await self._each(
            GROW,
            {
                shard: {"lease": self._keyspace.lease(shard), "fence": self._keyspace.fence(shard)}
                for shard in shards
            },
            runner=self.runner_id,
            nonce=self.nonce,
            colocated=self._colocated,
            with_inbox=True,
        )

    async def check(self, fences: Mapping[ShardId, int]) -> dict[ShardId, str]:
        """Return `ok`, `fenced` or `unfenced` for each."""
        answers = await self._each(CHECK, self._numbered(fences), nonce=self.nonce)
        return {shard: outcome.word for shard, outcome in answers.items()}

    async def close(self, fences: Mapping[ShardId, int]) -> dict[ShardId, str]:
        """Note that these fences ended cleanly, where they are still installed."""
        answers = await self._each(CLOSE, self._numbered(fences), nonce=self.nonce)
        return {shard: outcome.word for shard, outcome in answers.items()}

    async def want(self, shard: ShardId, fence: int, wants: Mapping[str, int]) -> None:
        """Note the types a shard wants served; `FencedError` if the fence does not stand."""
        outcome = await WANT(
            self._lanes,
            self._keyspace.slot(shard),
            fence=self._keyspace.fence(shard),
            number=str(fence),
            nonce=self.nonce,
            wants=",".join(f"{name}={when}" for name, when in sorted(wants.items())),
        )
        if outcome.word != "ok":
            raise FencedError(shard=str(shard), fence=fence, store="redis", detail=outcome.word)

    async def survey(self, shards: Iterable[ShardId]) -> dict[ShardId, Installed | None]:
        """Return what stands beside each shard's fence, None where none is installed."""
        answers = await self._each(
            SURVEY, {shard: {"fence": self._keyspace.fence(shard)} for shard in shards}
        )
        return {shard: _installed(outcome) for shard, outcome in answers.items()}

    def _numbered(self, fences: Mapping[ShardId, int]) -> dict[ShardId, dict[str, str]]:
        return {
            shard: {"fence": self._keyspace.fence(shard), "number": str(number)}
            for shard, number in fences.items()
        }

    async def _each(
        self,
        script: Script,
        groups: Mapping[ShardId, dict[str, str]],
        *,
        with_inbox: bool = False,
        **values: str | int,
    ) -> dict[ShardId, Outcome]:
        answers: dict[ShardId, Outcome] = {}
        failures: list[PersistenceFailedError] = []

        async def ask(partition: int, members: list[ShardId]) -> None:
            inbox = {"inbox": self._keyspace.inbox(self.runner_id, partition)} if with_inbox else {}
            try:
                outcome = await script(
                    self._lanes,
                    self._keyspace.slots[partition],
                    each=[groups[shard] for shard in members],
                    **values,
                    **inbox,
                )
            except PersistenceFailedError as error:
                failures.append(error)
            else:
                answers.update(zip(members, outcome.each, strict=True))

        async with anyio.create_task_group() as tasks:
            for partition, members in self._keyspace.by_partition(list(groups)):
                tasks.start_soon(ask, partition, members)
        if failures and not answers:
            raise failures[0]
        return answers


class RegisteredFences:
    """Fences ordered by the database's register."""

    def __init__(self, register: FenceRegister, keys: FenceKeys) -> None:
        self._register = register
        self._keys = keys

    async def establish(self, shards: Iterable[ShardId], *, timeout: float) -> dict[ShardId, int]:
        """Grant in one statement a group, then install; a Redis that is ahead is overtaken."""
        deadline = Clock.boot() + timeout
        proposals = dict.fromkeys(shards, 1)
        established: dict[ShardId, int] = {}
        while proposals:
            fences = await self._grant(proposals, deadline)
            proposals = {}
            for shard, outcome in (await self._keys.install(fences)).items():
                if outcome.word == "installed":
                    established[shard] = fences[shard]
                elif outcome.word == "behind":
                    proposals[shard] = int(outcome.fields[0]) + 1
        return established

    async def can_grant(self, *, timeout: float) -> bool:
        """Return whether the register answers."""
        try:
            await self._register.read("", (), timeout=timeout)
        except PersistenceFailedError:
            return False
        return True

    async def _grant(self, proposals: Mapping[ShardId, int], deadline: float) -> dict[ShardId, int]:
        fences: dict[ShardId, int] = {}
        for group in sorted({shard.group for shard in proposals}):
            left = deadline - Clock.boot()
            if left <= 0:
                raise PersistenceFailedError(
                    store="database", execution=Execution.NOT_EXECUTED, detail="no time left for fences"
                )
            numbers = {shard.number: number for shard, number in proposals.items() if shard.group == group}
            granted = await self._register.grant(group, numbers, self._keys.nonce, timeout=left)
            fences |= {ShardId(group, number): fence for number, fence in granted.items()}
        return fences


class WeakFences:
    """Fences ordered by Redis alone: as good as its memory."""

    def __init__(self, keys: FenceKeys) -> None:
        self._keys = keys

    async def establish(self, shards: Iterable[ShardId], *, timeout: float) -> dict[ShardId, int]:
        """Grant and install in one script a partition."""
        with anyio.fail_after(timeout):
            answers = await self._keys.grow(shards)
        return {
            shard: int(outcome.fields[0]) for shard, outcome in answers.items() if outcome.word == "installed"
        }

    async def can_grant(self, *, timeout: float) -> bool:  # noqa: ARG002 - nothing but Redis is needed
        """Return True: a runner that sees its leases sees its fences."""
        return True


def _installed(outcome: Outcome) -> Installed | None:
    if outcome.word == "bare":
        return None
    number, runner_id, ended, wants = (field.decode() for field in outcome.fields)
    pairs = (item.rpartition("=") for item in wants.split(",") if item)
    return Installed(
        int(number), runner_id, int(ended) if ended else None, {name: int(when) for name, _, when in pairs}
    )
