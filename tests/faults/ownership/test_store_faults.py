"""A data Redis that forgets, falls back, restarts, answers late or never: fences hold, all recovers."""

from __future__ import annotations

import pytest

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.embedded import RedisServer, ReplicatedServers
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.redis_access import Keyspace, Script
from redis_cluster_kit.testing import Proxy, command, until

from .crew import Crew

pytestmark = pytest.mark.faults


def fence_key(crew: Crew, number: int) -> str:
    return Keyspace(crew.namespace, 4).fence(ShardId("default", number))


def fences(server: RedisServer, crew: Crew) -> list[int]:
    found = [server.call("HGET", fence_key(crew, number), "f") for number in range(crew.shards)]
    return [int(str(fence)) if fence else 0 for fence in found]


async def in_order(crew: Crew) -> None:
    """Two runners share the shards, write everywhere and are ready."""
    await crew.join("a", "b")
    await crew.shared()
    await crew.serves()
    await crew.healthy()


async def recovered(crew: Crew, after: float, *, fence_changes: int = 8) -> None:
    """Nobody helped: everything is written again, shared fairly, ready, and no invariant was broken."""
    await crew.serves(after)
    await crew.shared()
    await crew.healthy()
    crew.verdict().require(ordered_pairs=50, commits=30, fence_changes=fence_changes)


async def test_a_server_restarted_empty(crew: Crew, private_valkey: RedisServer) -> None:
    await in_order(crew)
    before = fences(private_valkey, crew)
    private_valkey.restart(empty=True)
    assert set(fences(private_valkey, crew)) == {0}
    await recovered(crew, Clock.boot())
    assert all(now > then > 0 for now, then in zip(fences(private_valkey, crew), before, strict=True))


async def test_a_server_killed_and_away_for_longer_than_the_leases(
    crew: Crew, private_valkey: RedisServer
) -> None:
    await in_order(crew)
    private_valkey.kill()
    killed = Clock.boot()
    await until(
        lambda: set(crew.names) <= set(crew.first("lost", killed)), what="everybody steps down by itself"
    )
    private_valkey.restart()
    await recovered(crew, Clock.boot())


async def test_a_server_that_hangs_for_longer_than_the_leases(
    crew: Crew, private_valkey: RedisServer
) -> None:
    await in_order(crew)
    private_valkey.pause()
    hung = Clock.boot()
    await until(
        lambda: set(crew.names) <= set(crew.first("lost", hung)), what="everybody steps down by itself"
    )
    private_valkey.resume()
    await recovered(crew, Clock.boot(), fence_changes=4)


async def test_flushall(crew: Crew, private_valkey: RedisServer) -> None:
    await in_order(crew)
    before = fences(private_valkey, crew)
    flushed = Clock.boot()
    private_valkey.call("FLUSHALL")
    await until(
        lambda: set(crew.names) <= set(crew.first("refused", flushed)), what="writes refused on every shard"
    )
    await recovered(crew, Clock.boot())
    assert all(now > then > 0 for now, then in zip(fences(private_valkey, crew), before, strict=True))


async def test_an_evicted_fence_key_costs_its_shard_alone(crew: Crew, private_valkey: RedisServer) -> None:
    await in_order(crew)
    before = fences(private_valkey, crew)
    evicted = Clock.boot()
    assert private_valkey.call("DEL", fence_key(crew, 3)) == 1

    def forgotten() -> list[str]:
        return list(crew.first("lost", evicted, where=lambda event: "unfenced" in event["reason"]))

    await until(forgotten, what="its owner to step down")
    assert forgotten() == ["default:3"]
    await recovered(crew, Clock.boot(), fence_changes=1)
    assert fences(private_valkey, crew)[3] > before[3]


async def test_scripts_flushed_again_and_again(crew: Crew, private_valkey: RedisServer) -> None:
    await in_order(crew)
    begin, renew = Clock.boot(), Script.load("lease/renew").sha
    for _ in range(5):
        await until(lambda: private_valkey.call("SCRIPT", "EXISTS", renew) == [1], what="a renewal")
        private_valkey.call("SCRIPT", "FLUSH", "SYNC")
    with private_valkey.connect() as client:
        errors = client.info("errorstats")["errorstat_NOSCRIPT"]
    assert int(errors.removeprefix("count=")) >= 5
    await recovered(crew, begin, fence_changes=0)


async def test_a_lagging_replica_is_promoted(crew: Crew) -> None:
    with ReplicatedServers.start() as pair:
        async with Proxy.to("127.0.0.1", pair.primary.port) as front:
            crew.redis = front.url(pair.primary.url)
            await in_order(crew)
            pair.catch_up()
            pair.hold_back()
            await crew.stop("a")
            await until(lambda: len(crew.owned("b")) == crew.shards, timeout=30, what="b owns all")
            ahead, behind = fences(pair.primary, crew), fences(pair.replica, crew)
            # What `a` installed is what the replica knows, and `b` has written under newer ones since.
            assert sum(one > other > 0 for one, other in zip(ahead, behind, strict=True)) >= 4
            pair.promote()
            promoted = Clock.boot()
            front.retarget("127.0.0.1", pair.replica.port)
            assert front.reset_all()
            await crew.serves(promoted)
            assert all(now > then for now, then in zip(fences(pair.replica, crew), ahead, strict=True))
            await crew.wake("a")
            await recovered(crew, Clock.boot())
            await crew.close()


@pytest.mark.parametrize(
    "verb", ["lease/acquire", "fence/install", "lease/renew", "lease/release", "fence/check"]
)
async def test_one_lost_reply(crew: Crew, private_valkey: RedisServer, verb: str) -> None:
    await crew.join("a", "b")
    await crew.shared()
    async with Proxy.to("127.0.0.1", private_valkey.port) as proxy:
        loss = proxy.lose_reply(command(sha=Script.load(verb).sha))
        joining = Clock.boot()
        await crew.join("c", redis=proxy.url(private_valkey.url))
        await crew.shared()
        if verb == "lease/release":
            crew.children["c"].terminate()
            await crew.children["c"].wait()
        await until(lambda: loss.count, what="the loss")
        loss.assert_fired(1)
        await recovered(crew, joining, fence_changes=4)
        await crew.close()


async def test_half_the_packets_held_for_up_to_half_a_second(crew: Crew, private_valkey: RedisServer) -> None:
    async with Proxy.to("127.0.0.1", private_valkey.port) as proxy:
        crew.redis = proxy.url(private_valkey.url)
        await in_order(crew)
        with proxy.delay(0.05, 0.5, probability=0.5, seed=4) as delay:
            await until(lambda: delay.count >= 300, timeout=60, what="300 packets held")
            held = Clock.boot()
            await until(lambda: crew.first("lost", held - 60), timeout=60, what="a lease lost by it")
        await recovered(crew, Clock.boot())
        await crew.close()


async def test_a_runner_cut_off_from_redis_alone(crew: Crew, private_valkey: RedisServer) -> None:
    await crew.join("b")
    async with Proxy.to("127.0.0.1", private_valkey.port) as proxy:
        await crew.join("a", redis=proxy.url(private_valkey.url))
        await crew.shared()
        await crew.serves()
        mine = crew.owned("a")
        with proxy.cut() as cut:
            begin = Clock.boot()
            await until(lambda: set(mine) <= set(crew.first("gained", begin, of=("b",))), what="b takes all")
            await until(lambda: set(mine) <= set(crew.first("lost", begin, of=("a",))), what="a steps down")
            cut.assert_fired()
        await recovered(crew, Clock.boot(), fence_changes=len(mine))
        await crew.close()
