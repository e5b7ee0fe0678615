"""Durable state: what may be saved, what a leader finds, what older releases left, what outlives what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import anyio
import msgspec
import pytest

from redis_cluster_kit import (
    Cluster,
    FencedError,
    LeaseSettings,
    Registry,
    SchemaDecodeFailedError,
    SingletonContext,
    StateLoadFailedError,
)
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import until

from .conftest import TTL, MakeCluster, leads, quick, quiet


class Progress(msgspec.Struct):
    last_id: str = ""
    seen: int = 0


def once(
    act: Callable[[SingletonContext[Any]], Any], state: type[Any] = Progress, **options: Any
) -> Registry:
    """A singleton `s` that acts once and then idles."""
    registry = Registry()

    @registry.singleton("s", state=state, **options)
    async def s(ctx: SingletonContext[Any]) -> None:
        await act(ctx)
        await anyio.sleep_forever()

    return registry


async def saved(cluster: Cluster, version: int, kind: type[Any] = Progress, *, fresh: bool = True) -> Any:
    """Wait until this version is there and return it."""

    async def there() -> Any:
        found = await cluster.singleton_state("s", kind, fresh=fresh)
        return found is not None and found.version >= version and found

    return await until(there, what=f"version {version}")


async def write_and_leave(make: MakeCluster, *states: Any, **options: Any) -> None:
    """Be a leader that saves these states, and leave."""

    async def act(ctx: SingletonContext[Any]) -> None:
        for state in states:
            await ctx.set(state)

    async with make(include=[once(act, type(states[0]), **options)]) as cluster:
        await saved(cluster, len(states), type(states[0]))


async def found_by_next(make: MakeCluster, state: type[Any], **options: Any) -> tuple[Any, dict[str, int]]:
    """What the next leader begins with, and the errors it counted."""
    found: list[Any] = []

    async def act(ctx: SingletonContext[Any]) -> None:
        found.append(ctx.state)

    async with make(include=[once(act, state, **options)]) as cluster:
        await until(lambda: bool(found), what="the next leader")
        host = cluster.joined_runner().host
        assert host is not None
        return found[0], dict(host.singletons.counters["s"].errors)


async def test_the_ways_to_save(make_cluster: MakeCluster) -> None:
    errors: list[str] = []
    done = anyio.Event()

    async def act(ctx: SingletonContext[Progress]) -> None:
        assert ctx.state == Progress()
        ctx.state.seen = 99  # a copy: nothing is saved
        assert ctx.state == Progress()
        await ctx.set(Progress("a", 1))
        await ctx.update(seen=ctx.state.seen + 1)
        await ctx.patch(Progress, last_id="b")
        await ctx.patch(Progress, "c")
        assert ctx.state == Progress("c", 2)
        for wrong in (
            ctx.update(sean=1),
            ctx.update(seen="many"),
            ctx.patch(V1, seen=1),  # type: ignore[arg-type]
            ctx.set({"seen": 1}),  # type: ignore[arg-type]
        ):
            with pytest.raises(TypeError) as refused:
                await wrong
            errors.append(str(refused.value))
        assert ctx.state == Progress("c", 2)
        done.set()

    async with make_cluster(include=[once(act)]) as cluster:
        await until(done.is_set, what="all is tried")
        found = await saved(cluster, 4)
        assert (found.state, found.version) == (Progress("c", 2), 4)
    assert "has no field 'sean'; it has last_id, seen" in errors[0]
    assert "Expected `int`" in errors[1]
    assert "the state is a Progress, not a V1" in errors[2]
    assert "expected a Progress" in errors[3]


async def test_updates_of_several_tasks_do_not_lose_each_other(make_sqlite_cluster: MakeCluster) -> None:
    async def act(ctx: SingletonContext[dict[str, int]]) -> None:
        async def add(name: str) -> None:
            await ctx._leadership.write(lambda state: {**state, name: len(state)})

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(add, f"n{number}")

    async with make_sqlite_cluster(include=[once(act, dict)]) as cluster:
        found = await saved(cluster, 20, dict)
        assert sorted(found.state.values()) == list(range(20))


@dataclass
class AsDataclass:
    name: str = "x"
    parts: tuple[int, ...] = ()


@pytest.mark.parametrize("state", [AsDataclass("y", (1, 2)), {"a": [1]}, ["a"], 7, "text", b"bytes"])
async def test_states_of_other_types(make_sqlite_cluster: MakeCluster, state: Any) -> None:
    await write_and_leave(make_sqlite_cluster, state)
    assert await found_by_next(make_sqlite_cluster, type(state)) == (state, {})


# Releases of a state


class V1(msgspec.Struct):
    seen: int = 0
    gone: str = "was there"


class V2(msgspec.Struct):
    seen: int = 0
    added: list[str] = msgspec.field(default_factory=lambda: ["new"])


class V3(msgspec.Struct):
    seen: str = "none"
    added: list[str] = msgspec.field(default_factory=lambda: ["new"])


class V4(msgspec.Struct):
    required: int


@pytest.mark.parametrize(
    ("older", "newer", "expected", "errors"),
    [
        (V1(5), V2, V2(5, ["new"]), {}),
        (V2(5, ["old"]), V1, V1(5, "was there"), {}),
        (V2(5, ["old"]), V3, V3("none", ["old"]), {"SchemaDecodeFailed": 1}),
        (V1(5), V4, V4(1), {"SchemaDecodeFailed": 1}),
        (["no", "struct"], V2, V2(), {"SchemaDecodeFailed": 1}),
    ],
)
async def test_the_next_release_takes_what_fits(
    make_cluster: MakeCluster, older: Any, newer: type[Any], expected: Any, errors: dict[str, int]
) -> None:
    await write_and_leave(make_cluster, older, state_version=1)
    options = {"initial": V4(1)} if newer is V4 else {}
    with quiet("redis_cluster_kit.runtime.leader_state"):
        assert await found_by_next(make_cluster, newer, **options) == (expected, errors)


async def test_what_cannot_be_decoded_is_kept_aside_and_logged(
    make_cluster: MakeCluster, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await write_and_leave(make_cluster, ["old", "bytes"])
    written: list[int] = []

    async def act(ctx: SingletonContext[Progress]) -> None:
        await ctx.set(Progress("new", 1))
        written.append(1)

    async with make_cluster(include=[once(act, state_version=2)]) as cluster:
        await until(lambda: bool(written), what="the next release has saved")
        found = await saved(cluster, 2)
        assert (found.state, found.version, found.schema_version) == (Progress("new", 1), 2, 2)
    ((version, schema, body, reason),) = await raw(
        "SELECT version, schema_version, body, reason FROM rck_singleton_aside"
    )
    assert (version, schema) == (1, 1)
    assert msgspec.msgpack.decode(bytes(body)) == ["old", "bytes"]
    assert "Expected `object`" in reason
    assert "is kept aside" in caplog.text


async def test_a_reader_of_another_type_is_told(make_sqlite_cluster: MakeCluster) -> None:
    await write_and_leave(make_sqlite_cluster, ["list"])
    async with make_sqlite_cluster(hosting=False) as outside:
        with pytest.raises(SchemaDecodeFailedError, match="singleton 's'"):
            await outside.singleton_state("s", Progress)


# Forgetting


async def test_a_state_nobody_serves_is_forgotten_after_its_ttl(make_cluster: MakeCluster, raw: Any) -> None:
    ttl = timedelta(milliseconds=600)
    await write_and_leave(make_cluster, Progress("a", 1), state_ttl=ttl)
    async with make_cluster(entities=[]) as another:  # owns the shard, and does not serve it
        host = another.joined_runner().host
        assert host is not None

        async def forgotten() -> bool:
            await host.singletons.clean_once(host.owned)
            return not await raw("SELECT 1 FROM rck_singleton_state")

        await until(forgotten, what="the state is forgotten")
        assert await raw("SELECT 1 FROM rck_singleton_metadata") == []
        await until(lambda: _is_gone(another), what="the copy has expired")
    assert await found_by_next(make_cluster, Progress, state_ttl=ttl) == (Progress(), {})


async def _is_gone(cluster: Cluster) -> bool:
    return await cluster.singleton_state("s", Progress) is None


async def test_the_next_leader_forgets_it_too_and_one_without_ttl_finds_it(make_cluster: MakeCluster) -> None:
    await write_and_leave(make_cluster, Progress("a", 1))
    state, _ = await found_by_next(make_cluster, Progress, state_ttl=timedelta(hours=1))
    assert state == Progress("a", 1)
    short = timedelta(milliseconds=100)
    state, _ = await found_by_next(make_cluster, Progress, state_ttl=short)
    assert state == Progress("a", 1)  # the leader before allowed an hour
    await anyio.sleep(0.2)
    state, _ = await found_by_next(make_cluster, Progress, state_ttl=short)
    assert state == Progress()


async def test_a_leader_keeps_its_state_alive_by_heartbeats(make_cluster: MakeCluster) -> None:
    ttl = timedelta(milliseconds=900)
    async with make_cluster(include=[once(lambda ctx: ctx.set(Progress("a", 1)), state_ttl=ttl)]) as cluster:
        first = await saved(cluster, 1)
        assert first.age < ttl

        async def old() -> bool:
            found = await cluster.singleton_state("s", Progress)
            assert found is not None
            return bool(found.age > 2 * ttl)

        await until(old, what="older than its ttl and still there")


# Redis' copy


async def test_a_wiped_redis_gets_state_back_and_fences_do_not_go_back(
    private_valkey: RedisServer, make_cluster: MakeCluster, database_url: str
) -> None:
    fences: list[int] = []

    async def act(ctx: SingletonContext[Progress]) -> None:
        fences.append(ctx.fence)
        await ctx.update(seen=ctx.state.seen + 1)

    async with make_cluster(include=[once(act)], redis=private_valkey.url) as cluster:
        await saved(cluster, 1)
        private_valkey.call("FLUSHALL")
        found = await saved(cluster, 2, fresh=False)
        assert found.state == Progress("", 2)
    assert len(fences) == 2
    assert fences[1] > fences[0]


async def test_a_deleted_copy_is_written_again(make_cluster: MakeCluster, valkey: RedisServer) -> None:
    proceed = anyio.Event()

    async def act(ctx: SingletonContext[Progress]) -> None:
        await ctx.set(Progress("a", 1))
        await proceed.wait()
        await ctx.heartbeat()

    async with make_cluster(include=[once(act)]) as cluster:
        host = cluster.joined_runner().host
        assert host is not None
        store = host.singletons.store
        shard = cluster._singleton_shard("s", None)
        key = cluster.joined_runner().keyspace.state(shard, "s")
        await until(lambda: valkey.call("DEL", key), what="the copy is there and deleted")
        proceed.set()
        await until(lambda: store.cache.read("s", shard), what="the copy is there again")
        found = await saved(cluster, 1, fresh=False)
        assert (found.state, found.version) == (Progress("a", 1), 1)


async def test_written_to_the_database_and_dead_before_redis(make_cluster: MakeCluster) -> None:
    """The copy stays behind; who takes over loads what the database has, and repairs the copy."""
    held = anyio.Event()

    async def act(ctx: SingletonContext[Progress]) -> None:
        await ctx.set(Progress("first", 1))
        store = ctx._leadership._host.store

        async def never(*_: Any) -> None:
            held.set()
            await anyio.sleep_forever()

        store.copy = never
        await ctx.set(Progress("second", 2))

    async with make_cluster(include=[once(act)]) as cluster:
        await until(held.is_set, what="the database has it, Redis not")
        assert (await saved(cluster, 1, fresh=False)).state == Progress("first", 1)
        assert (await saved(cluster, 2, fresh=True)).state == Progress("second", 2)
        await cluster.joined_runner().kill()
    found: list[Any] = []

    async def look(ctx: SingletonContext[Progress]) -> None:
        found.append(ctx.state)

    async with make_cluster(include=[once(look)]) as successor:
        await until(lambda: bool(found), what="the successor leads")
        assert found == [Progress("second", 2)]
        assert (await saved(successor, 2, fresh=False)).state == Progress("second", 2)


# A leader that is none any more


async def test_after_its_copy_expired_and_another_leads_a_late_write_changes_nothing(
    make_cluster: MakeCluster, valkey: RedisServer
) -> None:
    """A forced double grant: the register and Redis name another owner, and the first one does not know."""
    release = anyio.Event()
    refused: list[BaseException] = []

    async def act(ctx: SingletonContext[Progress]) -> None:
        if refused:
            return
        await ctx.set(Progress("mine", 1))
        await release.wait()
        try:
            await ctx.set(Progress("late", 2))
        except FencedError as error:
            refused.append(error)
            raise

    with quiet():
        settings = quick(lease=LeaseSettings(ttl=timedelta(seconds=30)))
        async with make_cluster(include=[once(act)], settings=settings) as cluster:
            await saved(cluster, 1)
            runner = cluster.joined_runner()
            shard = cluster._singleton_shard("s", None)
            from redis_cluster_kit.storage import FenceRegister

            assert runner.database is not None
            register = FenceRegister(runner.database, runner.keyspace.namespace)
            granted = await register.grant(shard.group, {shard.number: 1}, "other", timeout=5)
            valkey.call("DEL", runner.keyspace.state(shard, "s"))
            release.set()
            await until(lambda: bool(refused), what="the late write is refused")
            assert isinstance(refused[0], FencedError)
            assert refused[0].store == "database"
            assert granted[shard.number] > refused[0].fence
            assert runner.host is not None
            assert runner.host.counters.fenced >= 1
            found = await cluster.singleton_state("s", Progress, fresh=True)
            assert found is not None
            assert (found.state, found.version) == (Progress("mine", 1), 1)
            await leads(cluster)  # it noticed, released, and acquired again above the other's fence


async def test_a_runner_that_never_saved_anything_reads_nothing(make_cluster: MakeCluster) -> None:
    async with make_cluster(include=[once(lambda ctx: anyio.sleep(0))]) as cluster:
        await leads(cluster)
        assert await cluster.singleton_state("s", Progress) is None
        assert await cluster.singleton_state("s", Progress, fresh=True) is None


async def test_a_reader_without_stores_is_told_what_failed(
    make_sqlite_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from redis_cluster_kit.errors import PersistenceFailedError
    from redis_cluster_kit.storage import SqlState

    async def away(*_: Any, **__: Any) -> None:
        raise PersistenceFailedError(store="database", detail="away")

    monkeypatch.setattr(SqlState, "read", away)
    async with make_sqlite_cluster(hosting=False) as outside:
        with pytest.raises(StateLoadFailedError, match=r"singleton 's'.*away") as failed:
            await outside.singleton_state("s", Progress, fresh=True)
        assert failed.value.is_retryable
    assert timedelta(seconds=1) == TTL
