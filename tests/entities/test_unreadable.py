"""Messages this owner cannot read or does not know: bad bytes are buried, what is newer waits."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from redis_cluster_kit import Cluster, Entity, MalformedMessageError, rpc
from redis_cluster_kit.delivery import Mailboxes
from redis_cluster_kit.envelope import Envelope, seal_envelope
from redis_cluster_kit.testing import until

from .account import Account
from .conftest import MakeCluster, host_of, keys_of, owns_all, put_raw, raw_parcel


class Older(Entity[None], name="type"):
    @rpc
    async def greet(self, name: str) -> str:
        return f"hello {name}"


class Newer(Entity[None], name="type"):
    @rpc
    async def greet(self, name: str) -> str:
        return f"hello {name}"

    @rpc
    async def leave(self, name: str) -> str:
        return f"bye {name}"


def envelope(rpc: str, **arguments: object) -> bytes:
    return seal_envelope(Envelope(rpc=rpc, args=msgspec.Raw(msgspec.msgpack.encode(arguments))))


DEEP = b"\x01\x92\xa7deposit" + b"\x81\xa6amount" + b"\x91" * 10_000 + b"\x01"

BAD = {
    "nothing": b"",
    "version 0": b"\x00",
    "only a version": b"\x01",
    "no msgpack": b"\x01\xc1",
    "no array": b"\x01\x80",
    "no rpc": b"\x01\x90",
    "arguments by place": b"\x01\x92\xa7deposit\x91\x05",
    "a wrong type": envelope("deposit", amount="ten"),
    "an argument missing": envelope("deposit"),
    "too deep": DEEP,
    "cut short": envelope("deposit", amount=5)[:-1],
    "something behind it": envelope("deposit", amount=5) + b"x",
}


@pytest.mark.parametrize("case", BAD)
async def test_bytes_that_fit_nothing_are_buried(make_cluster: MakeCluster, case: str) -> None:
    """And they hold up nobody: what comes after them is handled."""
    async with make_cluster(Account) as cluster:
        alice = cluster.entity(Account, "alice")
        id = await put_raw(cluster, raw_parcel(cluster, Account, "alice", BAD[case]))
        assert await alice.deposit(1) == 1
        (letter,) = await cluster.dead_letters.list()
        assert (letter.message_id, letter.type, letter.entity_id) == (id, "account", "alice")
        assert letter.reason
        assert letter.failures <= 1
        with pytest.raises(MalformedMessageError):
            await cluster.receipt(id, int).result()
        assert await cluster.dead_letters.replay(id)  # to no avail, and to no harm
        assert await alice.deposit(1) == 2


# --- What somebody else may know ---


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody knows is buried after a moment instead of ten minutes."""
    monkeypatch.setattr("redis_cluster_kit.runtime.unknown.FORGOTTEN_AFTER_MS", 1_500)
    monkeypatch.setattr("redis_cluster_kit.runtime.unknown._LOOK_EVERY", 0.05)


async def waits_for(cluster: Cluster, *names: str) -> bool:
    report = await cluster.health()
    return all(any(name in reason for reason in report.reasons) for name in names)


async def is_wanted(cluster: Cluster, id: str, name: str) -> bool:
    """Whether the shard's want is noted, which steers the placement when somebody joins."""
    keys = keys_of(cluster, Older, id)
    wants: bytes | None = await cluster.joined_runner().commands.call(keys.slot, "HGET", keys.fence, "w")
    return wants is not None and f"{name}=".encode() in wants


async def test_an_unknown_rpc_waits_for_a_runner_that_serves_it(make_cluster: MakeCluster) -> None:
    async with make_cluster(Older) as older:
        await until(lambda: owns_all(older))
        new = older.entity(Newer, "x")
        receipt = await new.leave.send("a")
        await until(lambda: waits_for(older, "type/leave"), every=0.05)
        await until(lambda: is_wanted(older, "x", "type/leave"))
        after = await new.greet.send("b")  # in order, so it waits too
        assert await older.entity(Older, "else").greet("c") == "hello c"  # others go on
        assert await older.dead_letters.list() == []
        async with make_cluster(Newer) as newer:
            assert await newer.receipt(receipt.message_id, str).result(timeout=20) == "bye a"
            assert await newer.receipt(after.message_id, str).result() == "hello b"
            assert newer.is_local(Newer, "x")
            assert await newer.dead_letters.list() == []


async def test_an_unknown_type_waits_for_a_runner_that_serves_it(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as account:
        await until(lambda: owns_all(account))
        receipt = await account.entity(Older, "x").greet.send("a")
        await until(lambda: waits_for(account, "type"), every=0.05)
        await until(lambda: is_wanted(account, "x", "type"))
        async with make_cluster(Account, Older) as both:
            assert await both.receipt(receipt.message_id, str).result(timeout=20) == "hello a"
            assert both.is_local(Older, "x")


async def test_a_newer_envelope_waits(make_cluster: MakeCluster) -> None:
    async with make_cluster(Older) as cluster:
        await put_raw(cluster, raw_parcel(cluster, Older, "x", b"\x02whatever it means"))
        await until(lambda: waits_for(cluster, "envelope/2"), every=0.05)
        assert await cluster.dead_letters.list() == []


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("what", ["rpc", "type", "envelope"])
async def test_what_nobody_knows_for_long_is_buried(make_cluster: MakeCluster, what: str) -> None:
    async with make_cluster(Account if what == "type" else Older) as cluster:
        if what == "rpc":
            receipt = await cluster.entity(Newer, "x").leave.send("a")
            id = receipt.message_id
        else:
            message = envelope("greet", name="a") if what == "type" else b"\x02later"
            id = await put_raw(cluster, raw_parcel(cluster, Older, "x", message))
        letters = await until(cluster.dead_letters.list, timeout=20)
        assert [letter.message_id for letter in letters] == [id]
        assert "no live runner knows" in letters[0].reason
        with pytest.raises(MalformedMessageError):
            await cluster.receipt(id, str).result()

        await until(lambda: not host_of(cluster).unknown_names)


@pytest.mark.usefixtures("impatient")
async def test_several_that_wait_for_the_same(make_cluster: MakeCluster) -> None:
    async with make_cluster(Older) as cluster:
        receipts = [await cluster.entity(Newer, str(number)).leave.send("a") for number in range(12)]
        await until(lambda: _all_buried(cluster, 12), timeout=30)
        assert {letter.rpc for letter in await cluster.dead_letters.list()} == {"leave"}
        assert len(receipts) == 12
        await until(lambda: not host_of(cluster).unknown_names)


async def _all_buried(cluster: Cluster, count: int) -> bool:
    return len(await cluster.dead_letters.list()) == count


async def test_what_another_runner_knows_moves_to_it(make_cluster: MakeCluster) -> None:
    """Both are there when the message comes, and both stay."""
    async with make_cluster(Newer) as newer, make_cluster(Older) as older:
        await until(lambda: owns_all(older, newer))
        id = next(id for id in map(str, range(100)) if older.is_local(Older, id))
        receipt = await newer.entity(Newer, id).leave.send("a")
        assert await receipt.result(timeout=20) == "bye a"
        assert newer.is_local(Newer, id)
        assert await older.dead_letters.list() == []


# --- What was withdrawn meanwhile ---


@pytest.mark.parametrize("forget", ["reset", "delete"])
async def test_reset_ends_the_wait_for_an_unknown_rpc(make_cluster: MakeCluster, forget: str) -> None:
    """The entity goes on with what comes next, long before anybody would bury what it waited for."""
    async with make_cluster(Older) as cluster:
        await cluster.entity(Newer, "x").leave.send("a")
        await until(lambda: waits_for(cluster, "type/leave"), every=0.05)
        await getattr(cluster, forget)(Older, "x")
        assert await cluster.entity(Older, "x").greet.options(timeout=10)("b") == "hello b"
        assert host_of(cluster).unknown_names == []
        assert await cluster.dead_letters.list() == []


async def test_what_waited_alone_for_an_unknown_rpc_and_was_reset_leaves_nothing(
    make_cluster: MakeCluster,
) -> None:
    async with make_cluster(Older) as cluster:
        await cluster.entity(Newer, "x").leave.send("a")
        await until(lambda: waits_for(cluster, "type/leave"), every=0.05)
        await cluster.reset(Older, "x")
        await until(lambda: not host_of(cluster).unknown_names, timeout=15, what="nothing unknown left")


async def test_reset_ends_the_wait_for_an_unknown_type(make_cluster: MakeCluster) -> None:
    async with make_cluster(Account) as cluster:
        await cluster.entity(Older, "x").greet.send("a")
        await until(lambda: waits_for(cluster, "type"), every=0.05)
        await cluster.reset(Older, "x")
        await until(lambda: not host_of(cluster).unknown_names, timeout=15, what="nothing unknown left")


@pytest.mark.usefixtures("impatient")
async def test_a_reset_in_the_middle_of_a_burial_harms_no_shard(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_cluster(Account) as cluster:
        claim, struck = Mailboxes.claim, list[str]()

        async def claim_and_reset(self: Mailboxes, shard: Any, fence: Any, member: str, **how: Any) -> Any:
            found = await claim(self, shard, fence, member, **how)
            if found[0] is not None and member == "type:x":
                struck.append(member)
                await cluster.reset(Older, "x")
            return found

        monkeypatch.setattr(Mailboxes, "claim", claim_and_reset)
        fence = host_of(cluster).shards
        await until(lambda: owns_all(cluster))
        before = {name: served.fence for name, served in fence.items()}
        await cluster.entity(Older, "x").greet.send("a")
        await until(lambda: struck, timeout=20, what="the burial begun")
        await until(lambda: not host_of(cluster).unknown_names, what="nothing unknown left")
        assert {name: served.fence for name, served in host_of(cluster).shards.items()} == before
        assert await cluster.dead_letters.list() == []
