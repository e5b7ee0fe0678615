"""A database that stands still, dies, is slow or loses an answer: owners go on, orphans wait."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.embedded import PostgresServer
from redis_cluster_kit.testing import Proxy, statement, until

from .crew import Crew

pytestmark = pytest.mark.faults


@pytest.fixture
async def own(crew: Crew, private_postgres: PostgresServer) -> AsyncIterator[Crew]:
    """A crew whose database may be harmed."""
    crew.database = private_postgres.create_database("proof")
    # An owner that a busy machine lets miss its renewals cannot take its shards back without the database.
    crew.ttl = 1.5
    yield crew
    await crew.close()


async def in_order(crew: Crew) -> None:
    await crew.join("a", "b", "c")
    await crew.shared()
    await crew.serves()


async def recovered(crew: Crew, after: float) -> None:
    await crew.serves(after)
    await crew.shared()
    await crew.healthy()
    crew.verdict().require(ordered_pairs=50, commits=30, fence_changes=2)


async def orphans_wait(crew: Crew, killed: float) -> list[str]:
    """Without the database no grant is complete: what the dead runner owned stays free, the rest stays put.

    Placement may want a few more shards elsewhere now; their owners keep them, for nobody could take them.
    """
    mine = {**crew.owned("b"), **crew.owned("c")}
    theirs = [name for name in crew.names if name not in mine]
    assert theirs
    await until(
        lambda: Clock.boot() > killed + 2.5 * crew.ttl, what="the dead runner's leases to have ended long ago"
    )
    assert not crew.first("gained", killed)
    later = Clock.boot()
    await until(lambda: crew.accepted("redis", later) >= set(mine), what="present owners go on")
    return theirs


@pytest.mark.parametrize("how", ["standing still", "killed"])
async def test_a_database_away_for_longer_than_the_leases(
    own: Crew, private_postgres: PostgresServer, how: str
) -> None:
    own.shards = 16
    await in_order(own)
    private_postgres.pause() if how == "standing still" else private_postgres.kill()
    theirs = await orphans_wait(own, await own.kill("a"))
    report = await own.health("b")
    assert not report["ready"]
    assert any(reason.startswith("database:") for reason in report["reasons"])
    back = Clock.boot()
    private_postgres.resume() if how == "standing still" else private_postgres.restart()
    await recovered(own, back)
    assert set(theirs) <= set(own.first("gained", back))


async def test_a_slow_database_is_asked_again_until_it_is_quick_enough(
    own: Crew, private_postgres: PostgresServer
) -> None:
    async with Proxy.to("127.0.0.1", private_postgres.port, speaks="postgres") as proxy:
        own.database = proxy.url(own.database)
        await in_order(own)
        with proxy.delay(0.2, 0.3) as slow:  # a grant has a third of the TTL, and needs two round trips
            await orphans_wait(own, await own.kill("a"))
            assert slow.count > 20
        await recovered(own, Clock.boot())
        await own.close()


async def test_every_session_of_the_database_is_ended(own: Crew, private_postgres: PostgresServer) -> None:
    await in_order(own)
    killed = await own.kill("a")
    ended = private_postgres.execute(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'proof'"
    )
    assert int(ended) >= 2
    await recovered(own, killed)


async def test_one_lost_grant(own: Crew, private_postgres: PostgresServer) -> None:
    await own.join("a")
    await own.shared()
    async with Proxy.to("127.0.0.1", private_postgres.port, speaks="postgres") as proxy:
        loss = proxy.lose_reply(statement("INSERT INTO rck_fences"))
        begin = Clock.boot()
        await own.join("b", database=proxy.url(own.database))
        await own.shared()
        loss.assert_fired(1)
        await recovered(own, begin)
        shard = next(iter(own.owned("b")))
        # The grant that nobody heard of was made: the next one went above it.
        assert own.owned("b")[shard] >= 3
        await own.close()
