"""Three independent servers hold the leases: one may go, two may not, and any may forget."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import until

from .crew import Crew

pytestmark = pytest.mark.faults


@pytest.fixture
def nodes() -> Iterator[list[RedisServer]]:
    with RedisServer.start() as one, RedisServer.start() as two, RedisServer.start() as three:
        yield [one, two, three]


@pytest.fixture
async def in_order(crew: Crew, nodes: list[RedisServer]) -> AsyncIterator[Crew]:
    """Two runners share the shards, with leases on three nodes."""
    crew.nodes = [node.url for node in nodes]
    await crew.join("a", "b")
    await crew.shared()
    await crew.serves()
    await crew.healthy()
    yield crew
    await crew.close()  # before the nodes go


def leases(node: RedisServer) -> int:
    found = node.call("KEYS", "rck:*:lease:*")
    assert isinstance(found, list)
    return len(found)


async def grants_of_a_takeover(crew: Crew) -> None:
    """A runner is killed; with a majority there, its shards go to the other one."""
    mine = crew.owned("a")
    killed = await crew.kill("a")
    await crew.serves(killed)
    assert set(mine) <= set(crew.first("gained", killed, of=("b",)))


@pytest.mark.parametrize("how", ["killed", "hanging"])
async def test_one_of_three_away_changes_nothing(in_order: Crew, nodes: list[RedisServer], how: str) -> None:
    await until(lambda: [leases(node) for node in nodes] == [8, 8, 8], what="every lease on every node")
    begin = Clock.boot()
    nodes[1].kill() if how == "killed" else nodes[1].pause()
    await until(lambda: Clock.boot() > begin + 2 * in_order.ttl, what="two leases' time")
    await in_order.serves()
    await grants_of_a_takeover(in_order)
    await in_order.healthy()
    nodes[1].restart() if how == "killed" else nodes[1].resume()
    await until(lambda: leases(nodes[1]) == 8, what="the node to have every lease again")
    in_order.verdict().require(ordered_pairs=50, commits=30, fence_changes=8)


async def test_two_of_three_down_no_grants_and_a_clear_health(
    in_order: Crew, nodes: list[RedisServer]
) -> None:
    down = Clock.boot()
    nodes[0].kill()
    nodes[2].kill()
    await until(
        lambda: set(in_order.names) <= set(in_order.first("lost", down)),
        what="everybody steps down by itself",
    )
    lost = Clock.boot()
    report = await in_order.health("a")
    assert not report["ready"]
    assert any("2 of 3 lease nodes do not answer" in reason for reason in report["reasons"])
    await until(lambda: Clock.boot() > lost + in_order.ttl, what="a lease's time without a grant")
    assert not in_order.first("gained", lost)
    nodes[0].restart()
    restarted = Clock.boot()
    await in_order.serves(restarted)
    nodes[2].restart()
    await in_order.shared()
    await in_order.healthy()
    in_order.verdict().require(ordered_pairs=50, commits=30, fence_changes=8)


async def test_nodes_restarted_empty_one_after_the_other(in_order: Crew, nodes: list[RedisServer]) -> None:
    for node in nodes:
        node.restart(empty=True)
        begin = Clock.boot()
        await until(lambda node=node: leases(node) == 8, what="the node to be told every lease again")
        await in_order.serves(begin)
    await in_order.shared()
    await in_order.healthy()
    in_order.verdict().require(ordered_pairs=50, commits=30)


async def test_all_nodes_restarted_empty_at_once(in_order: Crew, nodes: list[RedisServer]) -> None:
    begin = Clock.boot()
    for node in nodes:
        node.restart(empty=True)
    await until(lambda: in_order.first("lost", begin), what="a lease lost")
    await in_order.serves(Clock.boot())
    await in_order.shared()
    await in_order.healthy()
    in_order.verdict().require(ordered_pairs=50, commits=30, fence_changes=1)
