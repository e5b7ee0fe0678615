"""Random faults, one after the other and sometimes two at once: no fence repeats, nothing stays stuck."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

import pytest

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.embedded import PostgresServer, RedisServer
from redis_cluster_kit.testing import Proxy, Seeds

from .crew import Crew
from .nemesis import Nemesis

pytestmark = pytest.mark.faults

SHORT = 8.0


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Say it now, not after the test."""

    def spoken(text: str) -> None:
        with capsys.disabled():
            print(text, flush=True)

    return spoken


@asynccontextmanager
async def unleashed(
    crew: Crew, redis: RedisServer, postgres: PostgresServer, seeds: Seeds, lease_nodes: int
) -> AsyncIterator[Nemesis]:
    """A nemesis of three runners at work."""
    with ExitStack() as servers:
        nodes = [servers.enter_context(RedisServer.start()) for _ in range(lease_nodes)]
        async with (
            Proxy.to("127.0.0.1", redis.port) as to_redis,
            Proxy.to("127.0.0.1", postgres.port, speaks="postgres") as to_postgres,
        ):
            crew.redis = to_redis.url(redis.url)
            crew.database = to_postgres.url(postgres.create_database("proof"))
            crew.nodes = [node.url for node in nodes]
            chance = seeds.random("nemesis", lease_nodes)
            await crew.join("a", "b", "c")
            await crew.shared()
            await crew.serves()
            yield Nemesis(crew, chance, redis, postgres, to_redis, to_postgres, nodes)
            await crew.close()


async def test_a_few_seconds_of_random_faults(
    crew: Crew, private_valkey: RedisServer, private_postgres: PostgresServer, rck_seeds: Seeds
) -> None:
    async with unleashed(crew, private_valkey, private_postgres, rck_seeds, 0) as nemesis:
        await nemesis.go_on(Clock.boot() + SHORT)
        await crew.shared()
        await crew.healthy()
        verdict = crew.verdict()
        print(nemesis.report(verdict))
        verdict.require(ordered_pairs=300, commits=200, fence_changes=8, loads=16)


@pytest.mark.long
@pytest.mark.parametrize("lease_nodes", [0, 3])
async def test_minutes_of_random_faults(
    lease_nodes: int,
    crew: Crew,
    private_valkey: RedisServer,
    private_postgres: PostgresServer,
    rck_seeds: Seeds,
    request: pytest.FixtureRequest,
    say: Callable[[str], None],
) -> None:
    minutes: float = request.config.getoption("--minutes")
    crew.shards, crew.pause = 16, 0.15
    say(f"\n{minutes:g} minutes with {lease_nodes or 'no'} lease nodes; {rck_seeds.hint}")
    async with unleashed(crew, private_valkey, private_postgres, rck_seeds, lease_nodes) as nemesis:
        nemesis.say = say
        await nemesis.go_on(Clock.boot() + minutes * 60)
        await crew.shared()
        await crew.healthy()
        verdict = crew.verdict()
        say(nemesis.report(verdict))
        assert set(nemesis.tallies) == set(nemesis.faults()), "every fault came at least once"
        verdict.require(ordered_pairs=10_000, commits=5_000, fence_changes=100, loads=100)
