"""Leases on 1, 3 or 5 Redis servers: a majority decides. Each says until when its holder may act.

The end is counted on this host's own clock from before the request was sent, less drift and margin, so the
holder always stops first. A lease alone protects nothing: that is the fence's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.errors import PersistenceFailedError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.redis_access import Keyspace, Lanes, Outcome, Script
from redis_cluster_kit.settings import LeaseSettings

ACQUIRE = Script.load("lease/acquire")
RENEW = Script.load("lease/renew")
RELEASE = Script.load("lease/release")
OWNERS = Script.load("lease/owners")


@dataclass(slots=True)
class Renewal:
    """What became of leases: renewed with their new deadline, or lost; the rest was not answered in time."""

    renewed: dict[ShardId, float] = field(default_factory=dict[ShardId, float])
    lost: set[ShardId] = field(default_factory=set[ShardId])


class LeaseNodes:
    """The servers that hold the leases. Nothing is tried twice here: the next round comes soon enough."""

    def __init__(
        self, nodes: Sequence[Lanes], keyspace: Keyspace, runner_id: str, settings: LeaseSettings
    ) -> None:
        self._nodes = list(nodes)
        self._keyspace = keyspace
        self._runner_id = runner_id
        self._settings = settings
        self._ttl_ms = settings.ttl // timedelta(milliseconds=1)
        self._usable = (settings.ttl - settings.drift - settings.margin).total_seconds()
        self._majority = len(self._nodes) // 2 + 1
        self.unreachable: dict[int, str] = {}
        """Nodes that did not answer the last request, by place, with what they said."""

    @property
    def has_majority(self) -> bool:
        """Whether enough nodes answered last time for grants and renewals."""
        return len(self._nodes) - len(self.unreachable) >= self._majority

    async def acquire(self, shards: Iterable[ShardId]) -> dict[ShardId, float]:
        """Take the free ones; return those taken with their local deadline."""
        wanted = list(shards)
        deadline = Clock.boot() + self._usable
        answers = await self._ask_all(ACQUIRE, wanted, self._settings.attempt_timeout, ttl=self._ttl_ms)
        votes = _votes(answers, "taken")
        taken = {shard: deadline for shard in wanted if votes[shard] >= self._majority}
        # A minority's leases would only keep others away until they end.
        await self.release(shard for shard in wanted if 0 < votes[shard] < self._majority)
        return taken if Clock.boot() < deadline else {}

    async def renew(self, shards: Iterable[ShardId]) -> Renewal:
        """Prolong what is held; a node that forgot a lease which a majority renewed gets it again."""
        held = list(shards)
        deadline = Clock.boot() + self._usable
        answers = await self._ask_all(RENEW, held, self._settings.attempt_timeout, ttl=self._ttl_ms)
        yes, no = _votes(answers, "renewed"), _votes(answers, "lost")
        result = Renewal()
        for shard in held:
            if yes[shard] >= self._majority:
                result.renewed[shard] = deadline
            elif no[shard] > len(self._nodes) - self._majority:
                result.lost.add(shard)
        forgotten = [shard for shard in result.renewed if no[shard]]
        if forgotten:
            await self._ask_all(ACQUIRE, forgotten, self._settings.attempt_timeout, ttl=self._ttl_ms)
        return result

    async def release(self, shards: Iterable[ShardId]) -> None:
        """Give back what is ours, as far as the nodes can be reached; the rest ends by itself."""
        given = list(shards)
        if given:
            # Longer than taking one: a lease that is not given back keeps its shard for a whole TTL.
            await self._ask_all(RELEASE, given, self._settings.renew_every)

    async def owners(self, shards: Iterable[ShardId]) -> dict[ShardId, str | None]:
        """Return who holds each shard by majority; `PersistenceFailedError` if too few nodes answer."""
        asked = list(shards)
        answers = await self._ask_all(OWNERS, asked, self._settings.ttl / 3)
        if not self.has_majority:
            raise self.too_few()
        owners: dict[ShardId, str | None] = {}
        for shard in asked:
            named = Counter(
                answer[shard].fields[0].decode()
                for answer in answers
                if shard in answer and answer[shard].word == "held"
            )
            best = named.most_common(1)
            owners[shard] = best[0][0] if best and best[0][1] >= self._majority else None
        return owners

    def too_few(self) -> PersistenceFailedError:
        """Return the error that says which nodes do not answer."""
        said = "; ".join(f"node {place}: {text}" for place, text in sorted(self.unreachable.items()))
        return PersistenceFailedError(
            store="lease nodes",
            detail=f"{len(self.unreachable)} of {len(self._nodes)} lease nodes do not answer: {said}",
        )

    async def _ask_all(
        self, script: Script, shards: list[ShardId], timeout: timedelta, **values: int
    ) -> list[Mapping[ShardId, Outcome]]:
        """Ask every node at once; what did not answer in time is missing from its mapping."""
        answers: list[dict[ShardId, Outcome]] = [{} for _ in self._nodes]
        if not script.header.arguments:
            named: dict[str, str | int] = dict(values)
        else:
            named = {"runner": self._runner_id, **values}
        failures: dict[int, str] = {}

        async def ask(place: int, partition: int, members: list[ShardId]) -> None:
            try:
                outcome = await script(
                    self._nodes[place],
                    self._keyspace.slots[partition],
                    each=[{"lease": self._keyspace.lease(shard)} for shard in members],
                    **named,
                )
            except PersistenceFailedError as error:
                failures[place] = error.detail
            else:
                answers[place].update(zip(members, outcome.each, strict=True))

        with anyio.move_on_after(timeout.total_seconds()) as scope:
            async with anyio.create_task_group() as group:
                for place in range(len(self._nodes)):
                    for partition, members in self._keyspace.by_partition(shards):
                        group.start_soon(ask, place, partition, members)
        if scope.cancelled_caught:
            for place, answer in enumerate(answers):
                if len(answer) < len(shards):
                    failures.setdefault(place, f"no answer within {timeout.total_seconds():g} s")
        self.unreachable = failures
        return list(answers)


def _votes(answers: Iterable[Mapping[ShardId, Outcome]], word: str) -> Counter[ShardId]:
    return Counter(shard for answer in answers for shard, outcome in answer.items() if outcome.word == word)
