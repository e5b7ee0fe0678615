"""Why the database grants fences: in a model, quorum fences go back once nodes forget, registered ones never.

Three to five nodes hold a lease and a fence each; runners ask them in any order, and nodes restart empty. The
control rows are what the kit does not do: fences from the nodes alone.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest

from redis_cluster_kit.testing import Seeds, Verdict
from redis_cluster_kit.testing.checkers import Grant, fences_increase, one_owner, ownership_spans
from redis_cluster_kit.testing.checkers import OwnershipEvent as Event

TTL = 30
STEPS = 600


@dataclass
class Node:
    """One lease node, as far as this matters: who holds the lease until when, and the fence it saw last."""

    fence: int = 0
    owner: str = ""
    until: int = 0
    down_until: int = 0


@dataclass
class World:
    """Nodes, a register, and runners that ask for grants in steps which interleave at random."""

    chance: random.Random
    nodes: int = 5
    forgets: float = 0.0
    """How likely a node restarts empty in a step."""
    absence: int = 0
    """For how long such a node stays away."""
    registered: bool = True
    now: int = 0
    register: int = 0
    forgotten: int = 0
    grants: list[Grant] = field(default_factory=list[Grant])
    held: list[Event] = field(default_factory=list[Event])

    def run(self) -> None:
        self.all = [Node() for _ in range(self.nodes)]
        asking: dict[str, Generator[None]] = {}
        for _ in range(STEPS):
            self.now += 1
            if self.chance.random() < self.forgets:
                self.forgotten += 1
                self.all[self.chance.randrange(self.nodes)] = Node(down_until=self.now + self.absence)
            name = self.chance.choice("abc")
            if name not in asking:
                asking[name] = self.ask(name)
            if next(asking[name], "over") == "over":
                del asking[name]

    def ask(self, name: str) -> Generator[None]:
        """One attempt: read from a majority, propose above it, and have a majority accept."""
        invoked, majority = self.now, self.nodes // 2 + 1
        seen: list[int] = []
        for node in self.in_any_order():
            if len(seen) < majority:
                if self.now >= node.down_until:
                    seen.append(node.fence)
                yield
        if len(seen) < majority:
            return
        proposed, accepted, sent = max(seen) + 1, 0, self.now
        for place in self.chance.sample(range(self.nodes), self.nodes):
            node = self.all[place]
            is_free = node.owner in ("", name) or self.now >= node.until
            if self.now >= node.down_until and is_free and proposed > node.fence:
                node.fence, node.owner, node.until = proposed, name, self.now + TTL
                accepted += 1
            yield
        if accepted < majority or self.now >= sent + TTL:
            return
        if self.registered:
            self.register = proposed = max(self.register + 1, proposed)
        self.grants.append(Grant("shard", proposed, f"{name}-{invoked}", invoked, self.now))
        self.held.append(Event("shard", name, "granted", self.now, sent + TTL))

    def in_any_order(self) -> list[Node]:
        return [self.all[place] for place in self.chance.sample(range(self.nodes), self.nodes)]


def many(seeds: Seeds, runs: int = 150, **options: float) -> tuple[Verdict, int, int]:
    """Judge many worlds together; return also how often nodes forgot, and how often two held the lease."""
    whole, forgotten, overlaps = Verdict(), 0, 0
    for number in range(runs):
        world = World(seeds.random("quorum", number), **options)  # type: ignore[arg-type]
        world.run()
        verdict = fences_increase(world.grants)
        whole.violations += verdict.violations
        for name, count in verdict.examined.items():
            whole.examined[name] = whole.examined.get(name, 0) + count
        forgotten += world.forgotten
        overlaps += len(one_owner(ownership_spans(world.held)).violations)
    return whole, forgotten, overlaps


IMMEDIATE = {"forgets": 0.05}
DELAYED = {"forgets": 0.05, "absence": TTL + 1}


@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize(
    "forgetting", [IMMEDIATE, DELAYED], ids=["restarts at once", "restarts after the TTL"]
)
def test_registered_fences_survive_nodes_that_forget(
    nodes: int, forgetting: dict[str, float], rck_seeds: Seeds
) -> None:
    verdict, forgotten, overlaps = many(rck_seeds, nodes=nodes, **forgetting)
    pairs = verdict.examined["ordered_pairs"]
    print(f"ordered pairs: {pairs:g}; {forgotten} times a node forgot; {overlaps} leases overlapped")
    verdict.require(grants=500, ordered_pairs=1_000)
    assert forgotten > 500


@pytest.mark.parametrize("nodes", [3, 5])
def test_quorum_fences_hold_while_no_node_forgets(nodes: int, rck_seeds: Seeds) -> None:
    verdict, _, overlaps = many(rck_seeds, nodes=nodes, registered=False)
    verdict.require(grants=500, ordered_pairs=1_000)
    assert not overlaps


@pytest.mark.parametrize(
    "forgetting", [IMMEDIATE, DELAYED], ids=["restarts at once", "restarts after the TTL"]
)
def test_quorum_fences_go_back_when_nodes_forget(forgetting: dict[str, float], rck_seeds: Seeds) -> None:
    verdict, forgotten, _ = many(rck_seeds, nodes=5, registered=False, **forgetting)
    assert forgotten > 500
    assert verdict.invariants == {"I5"}
