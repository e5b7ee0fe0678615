"""State: where it begins, how older versions are read, what forgets it; none is ever replaced unread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from redis_cluster_kit import Cluster, Entity, HandlerFailedError, PersistenceFailedError, current, rpc
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import until

from .account import QUICKLY, Account
from .conftest import MakeCluster, host_of, keys_of, residents, traces_of


class Profile(msgspec.Struct):
    name: str
    visits: int = 0


class Profiles(Entity[Profile], name="profile", state_version=3, retry=QUICKLY):
    def initial(self) -> Profile:
        return Profile(name=f"new {self.id}")

    @classmethod
    def upgrade(cls, raw: dict[str, Any], version: int) -> Profile:
        if version == 1:
            raise ValueError("version 1 is too old")
        return Profile(name=raw["first"] + " " + raw["last"], visits=version)

    @rpc
    async def visit(self) -> str:
        self.state.visits += 1
        return f"{self.state.name} {self.state.visits}"

    @rpc(readonly=True)
    async def look(self) -> str:
        return f"{self.state.name} {self.state.visits}"


class Plain(Entity[Profile], name="profile"):
    """The same entities in a later release that says nothing of older states."""

    def initial(self) -> Profile:
        return Profile(name="")

    @rpc
    async def visit(self) -> str:
        return self.state.name


async def store(cluster: Cluster, id: str, content: bytes, *, schema: int = 3, version: int = 5) -> None:
    keys = keys_of(cluster, Profiles, id)
    key = keys.entity(f"profile:{id}")
    await cluster.joined_runner().commands.call(
        keys.slot, "HSET", key, "v", version, "s", schema, "b", content
    )


async def stored(cluster: Cluster, id: str) -> list[bytes | None]:
    keys = keys_of(cluster, Profiles, id)
    found: list[bytes | None] = await cluster.joined_runner().commands.call(
        keys.slot, "HMGET", keys.entity(f"profile:{id}"), "v", "s", "b"
    )
    return found


async def test_it_begins_as_initial_says(make_cluster: MakeCluster) -> None:
    async with make_cluster(Profiles) as cluster:
        ada = cluster.entity(Profiles, "ada")
        assert await ada.look() == "new ada 0"
        assert await stored(cluster, "ada") == [None, None, None]  # looking saves nothing
        assert await ada.visit() == "new ada 1"
        assert (await stored(cluster, "ada"))[:2] == [b"1", b"3"]


async def test_an_older_state_is_upgraded_and_saved_with_the_first_turn(make_cluster: MakeCluster) -> None:
    async with make_cluster(Profiles) as cluster:
        await store(cluster, "ada", msgspec.msgpack.encode({"first": "Ada", "last": "L"}), schema=2)
        ada = cluster.entity(Profiles, "ada")
        assert await ada.look() == "Ada L 2"
        assert (await stored(cluster, "ada"))[:2] == [b"5", b"2"]
        assert await ada.visit() == "Ada L 3"
        assert (await stored(cluster, "ada"))[:2] == [b"6", b"3"]


async def test_an_older_state_without_upgrade_is_read_as_far_as_it_fits(make_cluster: MakeCluster) -> None:
    async with make_cluster(Plain) as cluster:
        await store(cluster, "ada", msgspec.msgpack.encode({"name": "Ada", "gone": 1}), schema=0)
        assert await cluster.entity(Plain, "ada").visit() == "Ada"


async def test_a_release_that_comes_back_does_not_cut_down_what_a_newer_one_saved(
    make_cluster: MakeCluster,
) -> None:
    async with make_cluster(Plain) as cluster:
        await store(cluster, "ada", msgspec.msgpack.encode({"full_name": "Ada L"}), schema=2)
        with pytest.raises(PersistenceFailedError, match="a newer release saved it"):
            await cluster.entity(Plain, "ada").visit()
        assert await stored(cluster, "ada") == [b"5", b"2", msgspec.msgpack.encode({"full_name": "Ada L"})]


@pytest.mark.parametrize(
    ("content", "schema"),
    [
        (b"\xc1", 3),
        (b"", 3),
        (msgspec.msgpack.encode({"name": 1}), 3),
        (msgspec.msgpack.encode([1, 2]), 2),
        (msgspec.msgpack.encode({"first": "Ada"}), 2),
        (msgspec.msgpack.encode({"first": "Ada", "last": "L"}), 1),
        (msgspec.msgpack.encode({"name": "Ada", "newer": 1}), 4),
    ],
    ids=["no msgpack", "nothing", "another type", "no mapping", "upgrade fails", "upgrade refuses", "newer"],
)
async def test_a_state_that_cannot_be_read_is_never_replaced(
    make_cluster: MakeCluster, content: bytes, schema: int
) -> None:
    async with make_cluster(Profiles) as cluster:
        await store(cluster, "ada", content, schema=schema)
        ada = cluster.entity(Profiles, "ada")
        for call in (ada.visit, ada.look):
            with pytest.raises(PersistenceFailedError, match="cannot be read and is kept"):
                await call()
        assert await stored(cluster, "ada") == [b"5", str(schema).encode(), content]
        assert len(await cluster.dead_letters.list()) == 2
        # Somebody mends it; the messages are replayed.
        await store(cluster, "ada", msgspec.msgpack.encode(Profile("Ada")), version=6)
        for letter in await cluster.dead_letters.list():
            assert await cluster.dead_letters.replay(letter.message_id)
        await until(lambda: _equals(ada.look, "Ada 1"))


async def _equals(call: Any, expected: object) -> bool:
    try:
        return bool(await call() == expected)
    except PersistenceFailedError:
        return False


# --- Forgetting ---


class Held(Entity[Profile]):
    gate: asyncio.Event
    begun: list[str]

    def initial(self) -> Profile:
        return Profile(name="initial")

    @rpc
    async def rename(self, name: str) -> str:
        Held.begun.append(name)
        await Held.gate.wait()
        self.state.name = name
        return name

    @rpc(readonly=True)
    async def name(self) -> str:
        return self.state.name


@pytest.fixture(autouse=True)
def open_gate() -> None:
    Held.gate, Held.begun = asyncio.Event(), []
    Held.gate.set()


async def test_reset_forgets_messages_and_replies_and_keeps_the_state(make_cluster: MakeCluster) -> None:
    async with make_cluster(Held) as cluster:
        held, other = cluster.entity(Held, "h"), cluster.entity(Held, "h2")
        done = await held.rename.send("a")
        await done.result()
        elsewhere = await other.rename.send("x")
        await elsewhere.result()
        Held.gate.clear()
        waiting = [await held.rename.send(name) for name in ("b", "c", "d")]
        await until(lambda: "b" in Held.begun)
        await cluster.reset(Held, "h")
        Held.gate.set()
        assert await held.name() == "a"
        # Its reply is forgotten; what waited may not be brought back by whoever waits for it.
        words = ["unknown", "withdrawn", "withdrawn", "withdrawn"]
        for receipt, word in zip((done, *waiting), words, strict=True):
            found = await cluster.joined_runner().messaging.mailboxes.lookup(
                cluster.shard_of(Held, "h"), "Held:h", receipt.message_id.partition("@")[0]
            )
            assert found.word == word
        assert Held.begun == ["a", "x", "b"]
        assert await elsewhere.result() == "x"  # others are left alone


async def test_delete_forgets_the_state_too(make_cluster: MakeCluster, valkey: RedisServer) -> None:
    async with make_cluster(Held) as cluster:
        held = cluster.entity(Held, "h")
        await held.rename("a")
        await held.rename.options(delay=timedelta(hours=1)).send("b")
        assert traces_of(valkey, cluster, "Held:h") >= {
            "entity",
            "mailbox",
            "live",
            "done",
            "scheduled",
            "later",
        }
        await cluster.delete(Held, "h")
        assert traces_of(valkey, cluster, "Held:h") == {"done"}  # what was withdrawn stays so for its window
        assert await held.name() == "initial"
        assert await held.rename("c") == "c"
        assert await held.name() == "c"


async def test_delete_during_a_turn_stops_its_commit(make_cluster: MakeCluster) -> None:
    async with make_cluster(Held) as cluster:
        held = cluster.entity(Held, "h")
        await held.rename("a")
        Held.gate.clear()
        await held.rename.send("b")
        await until(lambda: "b" in Held.begun)
        await cluster.delete(Held, "h")
        Held.gate.set()
        assert await held.name() == "initial"
        assert host_of(cluster).counters.lost >= 1


# --- Hooks and resources ---


class Pool:
    def __init__(self) -> None:
        self.log: list[str] = []


class Hooked(Entity[Profile], retry=QUICKLY):
    def initial(self) -> Profile:
        return Profile(name="initial")

    async def on_start(self) -> None:
        self.resource(Pool).log.append(
            f"start {self.id} {current().entity_id} {current().message_id is None}"
        )
        self.state.visits += 100
        self.state.name = "started"
        if self.id == "sender":
            await self.cluster.entity(Hooked, "target").look.send()
        if self.id == "broken":
            raise ValueError("no start")

    async def on_stop(self) -> None:
        self.resource(Pool).log.append(f"stop {self.id} {self.state.visits}")
        self.state.visits = -1

    @rpc
    async def visit(self) -> int:
        self.state.visits += 1
        return self.state.visits

    @rpc
    async def fail(self) -> None:
        self.state.visits += 1
        raise ValueError("after a change")

    @rpc(readonly=True)
    async def look(self) -> tuple[str, int]:
        return self.state.name, self.state.visits


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def with_pool(make_cluster: MakeCluster, pool: Pool) -> Any:
    @asynccontextmanager
    async def lifespan(cluster: Cluster) -> AsyncIterator[None]:
        cluster.provide(Pool, pool)
        yield
        pool.log.append("left")

    return lambda: make_cluster(Hooked, lifespan=lifespan)


async def test_changes_of_on_start_are_saved_with_the_first_turn_that_writes(
    with_pool: Any, pool: Pool
) -> None:
    async with with_pool() as cluster:
        entity = cluster.entity(Hooked, "h")
        assert await entity.look() == ("started", 100)
        assert await entity.look() == ("started", 100)
        with pytest.raises(HandlerFailedError):
            await entity.fail()
        assert await entity.look() == ("started", 100)
        assert await entity.visit() == 101
        assert await entity.visit() == 102
        starts = [line for line in pool.log if line.startswith("start")]
        assert starts == ["start h h False"]  # once for each activation
    assert pool.log[-2:] == ["stop h 102", "left"]  # before the resources go
    async with with_pool() as cluster:
        assert await cluster.entity(Hooked, "h").look() == ("started", 202)  # -1 was not saved


async def test_what_on_start_sends_leaves_with_the_first_commit(with_pool: Any, pool: Pool) -> None:
    async with with_pool() as cluster:
        await cluster.entity(Hooked, "sender").look()
        await until(lambda: any("start target" in line for line in pool.log))


async def test_an_on_start_that_raises_is_a_failure_of_the_message(with_pool: Any, pool: Pool) -> None:
    async with with_pool() as cluster:
        with pytest.raises(HandlerFailedError, match="no start"):
            await cluster.entity(Hooked, "broken").look()
        assert sum("start broken" in line for line in pool.log) == 3  # tried as often as a handler
    assert not any("stop broken" in line for line in pool.log)


async def test_a_resource_nobody_provided(make_cluster: MakeCluster) -> None:
    async with make_cluster(Hooked) as cluster:
        with pytest.raises(HandlerFailedError, match="no resource Pool") as caught:
            await cluster.entity(Hooked, "h").look()
        assert caught.value.remote_type == "LookupError"


async def test_one_entity_s_trouble_is_its_own(make_cluster: MakeCluster) -> None:
    async with make_cluster(Profiles, Account) as cluster:
        await store(cluster, "ada", b"\xc1")
        with pytest.raises(PersistenceFailedError):
            await cluster.entity(Profiles, "ada").look()
        assert await cluster.entity(Account, "alice").deposit(1) == 1
        assert residents(cluster) >= 1
