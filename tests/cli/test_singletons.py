"""`rck singletons`: what it shows of leaders that live, fail, are gone or were never there."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec

from redis_cluster_kit import Cluster, Registry, SingletonContext
from redis_cluster_kit.redis_access import Keyspace
from redis_cluster_kit.testing import until

from .conftest import Rck, joined


class Progress(msgspec.Struct):
    seen: int = 0
    secret: str = "hush"


def registry() -> Registry:
    made = Registry()

    @made.singleton("counter", state=Progress)
    async def counter(ctx: SingletonContext[Progress]) -> None:
        await ctx.update(seen=ctx.state.seen + 1)
        await anyio.sleep_forever()

    @made.singleton("broken")
    async def broken(ctx: SingletonContext[None]) -> None:
        raise ValueError("the books\ndo not balance")

    return made


async def seen(rck: Rck, *words: str, **variables: str) -> dict[str, Any]:
    return {one["singleton"]: one for one in (await rck("singletons", "--json", *words, **variables)).data}


async def both_ran(rck: Rck) -> None:
    async def noted() -> bool:
        found = await seen(rck)
        kept = [found[name]["metadata"] or {} for name in ("counter", "broken")]
        return bool(kept[0].get("run_count")) and bool(kept[1].get("last_error"))

    await until(noted, what="both singletons have notes")


async def test_who_leads_and_what_is_kept(rck: Rck) -> None:
    async with joined(rck, include=[registry()]) as cluster:
        await both_ran(rck)
        found = await seen(rck)
        counter, broken = found["counter"], found["broken"]
        assert counter["owner"] == broken["owner"] == cluster.runner_id
        assert (counter["verdict"], broken["verdict"]) == ("ok", "failing")
        assert counter["fence"] >= 1
        assert counter["version"] == counter["metadata"]["run_count"] == 1
        assert counter["metadata"]["heartbeat"] is not None
        assert broken["metadata"]["last_error"].startswith("ValueError: the books")
        assert "state" not in counter
        shown = await rck("singletons")
        assert shown.out.split()[:3] == ["singleton", "verdict", "shard"]
        row = next(line for line in shown.out.splitlines() if line.startswith("broken"))
        assert row.endswith("ValueError: the books")
        assert "hush" not in shown.out


async def test_states_are_shown_where_asked_for_from_the_copy_and_the_database(rck: Rck) -> None:
    async with joined(rck, include=[registry()]):
        await both_ran(rck)
        for database in ("", rck.variables["RCK_DATABASE"]):
            found = await seen(rck, "--state", "counter", RCK_DATABASE=database)
            assert list(found) == ["counter"]
            assert found["counter"]["state"] == {"seen": 1, "secret": "hush"}
        text = (await rck("singletons", "--state")).out
        assert 'counter  {"seen":1,"secret":"hush"}' in text
        assert "broken  null" in text


async def test_the_exit_code_tells_who_is_not_well_and_who_is_not_there(rck: Rck) -> None:
    async with joined(rck, include=[registry()]):
        await both_ran(rck)
        assert (await rck("singletons")).code == 0
        assert (await rck("singletons", "--check")).code == 1
        assert (await rck("singletons", "--check", "counter")).code == 0
        nobody = await rck("singletons", "nobody")
        assert nobody.code == 1
        assert "there is no singleton 'nobody'" in nobody.err


async def test_those_that_no_runner_serves_are_found_where_asked_for(rck: Rck, valkey: Any) -> None:
    async with joined(rck, include=[registry()]) as cluster:
        await both_ran(rck)
        shard = cluster._singleton_shard("counter", None)
    assert await seen(rck) == {}
    found = await seen(rck, "--all", RCK_DATABASE="")
    assert (found["counter"]["verdict"], found["counter"]["owner"]) == ("nobody serves it", None)
    assert found["counter"]["shard"] == str(shard)
    # The copies are lost: only the database knows them now.
    keyspace = Keyspace(rck.variables["RCK_NAMESPACE"], 16)
    valkey.call("DEL", keyspace.state(shard, "counter"), keyspace.singleton(shard, "counter"))
    assert "counter" not in await seen(rck, "--all", RCK_DATABASE="")
    found = await seen(rck, "--all", "--state")
    assert found["counter"]["state"]["seen"] == 1


async def test_a_leader_without_a_heartbeat_is_stale(rck: Rck, valkey: Any) -> None:
    async with joined(rck, include=[registry()]) as cluster:
        await both_ran(rck)
        key = cluster.joined_runner().keyspace.singleton(cluster._singleton_shard("counter", None), "counter")
        before = int(valkey.call("HGET", key, "heartbeat"))
        valkey.call("HSET", key, "heartbeat", before - 61_000)
        assert (await seen(rck, RCK_DATABASE=""))["counter"]["verdict"] == "stale"


async def test_without_a_database_redis_is_all_there_is(rck: Rck, private_valkey: Any) -> None:
    private_valkey.call("CONFIG", "SET", "appendonly", "yes")
    private_valkey.call("CONFIG", "SET", "appendfsync", "always")
    rck.variables |= {"RCK_REDIS": private_valkey.url, "RCK_DATABASE": ""}
    async with joined(rck, include=[registry()], database=None) as cluster:
        assert isinstance(cluster, Cluster)
        await both_ran(rck)
        found = await seen(rck, "--state")
        assert found["counter"]["state"]["seen"] == 1


async def test_a_database_that_is_away_is_named_without_its_secrets(rck: Rck) -> None:
    async with joined(rck, include=[registry()]):
        url = "postgresql+asyncpg://me:s3cret@127.0.0.1:1/app"
        answer = await rck("singletons", RCK_DATABASE=url)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith("rck singletons: the database cannot be used")
        assert "s3cret" not in answer.err
