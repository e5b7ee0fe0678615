"""`rck entity` and `rck deadletters`: what is stored, and what can be done about it by hand."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import anyio
import msgspec
import pytest

from redis_cluster_kit import Entity, HandlerFailedError, Retry, rpc
from redis_cluster_kit.testing import until

from .conftest import Rck, joined


class Ledger(msgspec.Struct):
    balance: int = 0


class Account(
    Entity[Ledger], name="account", retry=Retry(base=timedelta(milliseconds=1), factor=1, max_attempts=2)
):
    is_broken = True

    @rpc
    async def deposit(self, amount: int) -> int:
        self.state.balance += amount
        return self.state.balance

    @rpc
    async def audit(self, secret: str) -> str:
        if Account.is_broken:
            raise ValueError("the books do not balance")
        return secret


class Slow(Entity[None], name="slow", retry=Retry(base=timedelta(milliseconds=1), factor=1, max_attempts=3)):
    go_on = anyio.Event()
    runs = 0

    @rpc
    async def work(self) -> None:
        Slow.runs += 1
        if Slow.runs == 1:
            raise ValueError("not yet")
        await Slow.go_on.wait()


async def test_an_entity_is_shown_with_its_state_and_mailbox(rck: Rck) -> None:
    async with joined(rck, entities=[Account]) as cluster:
        alice = cluster.entity(Account, "alice")
        await alice.deposit(7)
        shown = (await rck("entity", "account", "alice", "--json")).data
        assert shown["entity"] == "account/alice"
        assert shown["owner"] == cluster.runner_id
        assert shown["shard"] == str(alice.address.shard)
        assert (shown["version"], shown["state"], shown["messages"]) == (1, {"balance": 7}, [])
        text = (await rck("entity", "account", "alice")).out
        assert '{"balance":7}' in text


async def test_what_waits_is_shown_without_its_payload_unless_asked(rck: Rck) -> None:
    async with joined(rck, entities=[Account]) as host:
        shard = host.shard_of(Account, "bob")
    async with joined(rck, hosting=False) as sender:
        await sender.entity(Account, "bob").deposit.send(5)
        plain = (await rck("entity", "account", "bob", "--group", shard.group, "--json")).data
        (message,) = plain["messages"]
        assert (message["rpc"], message["phase"], message["attempt"]) == ("deposit", "waiting", 1)
        assert "arguments" not in message
        full = (await rck("entity", "account", "bob", "--group", "default", "--payloads", "--json")).data
        assert full["messages"][0]["arguments"] == {"amount": 5}
        assert (
            '{"amount":5}' in (await rck("entity", "account", "bob", "--group", "default", "--payloads")).out
        )


async def test_what_a_handler_has_claimed_is_shown_with_its_attempt(rck: Rck) -> None:
    async with joined(rck, entities=[Slow]) as cluster:
        slow = cluster.entity(Slow, "carol")
        Slow.go_on, Slow.runs = anyio.Event(), 0
        await slow.work.send()  # the first attempt raises, the second waits

        async def claimed() -> Any:
            return (await rck("entity", "slow", "carol", "--json")).data["in_progress"]

        await until(lambda: Slow.runs == 2, what="a second attempt")
        taken = await until(claimed, what="a claimed message")
        assert (taken["rpc"], taken["attempt"]) == ("work", 2)
        shown = (await rck("entity", "slow", "carol")).out
        assert re.search(r"^in_progress +work, attempt 2, \d+ ms old$", shown, re.MULTILINE)
        assert re.search(r"^fence +[1-9]\d*$", shown, re.MULTILINE)
        Slow.go_on.set()

        async def nothing_waits() -> bool:
            return (await rck("entity", "slow", "carol", "--json")).data["waiting"] == 0

        await until(nothing_waits, what="an empty mailbox")


async def test_a_state_that_cannot_be_read_says_so(rck: Rck, valkey: Any) -> None:
    async with joined(rck, entities=[Account]) as cluster:
        alice = cluster.entity(Account, "alice")
        await alice.deposit(7)
        keys = cluster.joined_runner().keyspace.of(alice.address.shard)
        valkey.call("HSET", keys.entity("account:alice"), "b", "\xc1")
        shown = (await rck("entity", "account", "alice", "--json")).data
    assert "bytes that cannot be read" in shown["state"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nobody", "x"), "no live runner serves 'nobody'"),
        (("a b", "x"), "a type name is"),
        (("account", "x", "--group", "other"), "no shard group 'other'"),
    ],
)
async def test_what_cannot_be_looked_up_says_why(rck: Rck, words: tuple[str, ...], said: str) -> None:
    async with joined(rck, entities=[Account]):
        answer = await rck("entity", *words)
    assert answer.code == 2
    assert said in answer.err


async def test_dead_letters_are_listed_shown_replayed_and_dropped(rck: Rck) -> None:
    async with joined(rck, entities=[Account]) as cluster:
        alice = cluster.entity(Account, "alice")
        for _ in range(2):
            with pytest.raises(HandlerFailedError):
                await alice.audit("hush")
        first, second = (await rck("deadletters", "list", "--json")).data
        assert (first["type"], first["entity_id"], first["rpc"]) == ("account", "alice", "audit")
        assert first["failures"] == 2
        assert "hush" not in (await rck("deadletters", "list")).out
        assert (await rck("deadletters", "list", "--type", "other", "--json")).data == []

        shown = await rck("deadletters", "show", first["message_id"])
        assert "ValueError: the books do not balance" in shown.out
        assert "hush" not in shown.out
        asked = await rck("deadletters", "show", first["message_id"], "--payload", "--json")
        assert asked.data["arguments"] == {"secret": "hush"}

        assert (await rck("deadletters", "drop", first["message_id"], "--yes")).code == 0
        assert (await rck("deadletters", "drop", first["message_id"], "--yes")).code == 1
        Account.is_broken = False
        try:
            assert (await rck("deadletters", "replay", second["message_id"], "--yes", "--json")).code == 0
            assert await cluster.receipt(second["message_id"], str).result(timeout=10) == "hush"
        finally:
            Account.is_broken = True
        assert (await rck("deadletters", "list", "--json")).data == []
        assert (await rck("deadletters", "show", "no-id")).code == 2


async def test_changing_anything_asks_first(rck: Rck) -> None:
    async with joined(rck, entities=[Account]):
        for verb in ("replay", "drop"):
            answer = await rck("deadletters", verb, "0123456789ab-1@default:account:alice")
            assert answer.code == 2
            assert "--yes" in answer.err
