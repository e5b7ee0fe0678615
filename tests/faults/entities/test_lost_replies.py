"""The server did it and the answer got lost, once, for each script: everything still happens exactly once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from redis_cluster_kit import Cluster
from redis_cluster_kit.redis_access import Script
from redis_cluster_kit.runtime import EntityHost
from redis_cluster_kit.runtime.activation import EntityActivation
from redis_cluster_kit.testing import Proxy, command, until

from .fleet import GUARD, Fleet
from .load import Load
from .pod import Lodger

pytestmark = pytest.mark.faults
IDS = ("a", "b")
Call = Callable[[Any, str, str], Awaitable[Any]]

APPEND = Script.load("mailbox/append")
CLAIM = Script.load("mailbox/claim")
COMMIT = Script.load("turn/commit")
SENDING = COMMIT.refused_without_memory()


async def add(keeper: Any, mark: str, _: str) -> None:
    await keeper.add(mark)


async def tell(keeper: Any, mark: str, _: str) -> None:
    await keeper.add.send(mark)


async def add_and_send(keeper: Any, mark: str, _: str) -> None:
    await keeper.pass_on(mark, ["target"])


async def add_later(keeper: Any, mark: str, _: str) -> None:
    await keeper.add.options(delay=timedelta(milliseconds=50)).send(mark)


async def stumble(keeper: Any, mark: str, folder: str) -> None:
    await keeper.stumble(mark, 1, folder)


async def dawdle(keeper: Any, mark: str, _: str) -> None:
    await keeper.slow(mark, 0.3)


def alone(call: Call) -> Call:
    """One call at a time, so that nothing goes in a batch."""
    lock = anyio.Lock()

    async def locked(keeper: Any, mark: str, folder: str) -> None:
        async with lock:
            await call(keeper, mark, folder)

    return locked


LOSSES: list[tuple[str, str, Call | None]] = [
    ("a send's append", APPEND.sha, alone(tell)),
    ("an ask's append", APPEND.sha, alone(add)),
    ("a batch of appends", APPEND.in_batches().sha, None),
    ("a claim", CLAIM.sha, add),
    ("a commit", COMMIT.sha, alone(add)),
    ("a batch of commits", COMMIT.in_batches().sha, add),
    ("a commit with sends", SENDING.sha, add_and_send),
    ("a relay's removal", Script.load("outbox/remove").sha, add_and_send),
    ("a lookup", Script.load("mailbox/lookup").sha, dawdle),
    ("a failure's count", Script.load("turn/fail").sha, stumble),
    ("a schedule", Script.load("scheduled/put").sha, add_later),
    ("a promotion", Script.load("scheduled/promote").sha, add_later),
    ("a passivation", Script.load("mailbox/passivate").sha, add),
]


@pytest.mark.parametrize(("sha", "call"), [loss[1:] for loss in LOSSES], ids=[loss[0] for loss in LOSSES])
async def test_one_lost_reply(
    fleet: Fleet, proxy: Proxy, tmp_path: Path, sha: str, call: Call | None
) -> None:
    folder = str(tmp_path)
    send = None if call is None else lambda keeper, mark: call(keeper, mark, folder)
    await fleet.sender(proxy.url())
    async with fleet.hosting_here(proxy.url()) as host:
        lost = proxy.lose_reply(command("EVALSHA", "EVAL", sha=sha))
        load = Load(fleet, IDS, call=send)
        async with load:
            await load.acknowledged(20)
        await until(lambda: lost.count, timeout=GUARD, what="the reply to be lost")
        after = Load(fleet, IDS, call=send)
        async with after:
            await after.acknowledged(4)
        await fleet.drained()
        lost.assert_fired(1)
        assert not load.errors.keys() | after.errors.keys()
        assert entity_host(host).counters.buried == 0
        await fleet.only_state_stays()
    (await load.judge(after)).require(accepted=24)
    if call is add_and_send:
        for id in IDS:
            assert await fleet.passed_on("target", id) == await fleet.applied(id)


async def test_sends_of_a_commit_whose_reply_was_lost_do_not_wait_for_another(
    fleet: Fleet, proxy: Proxy
) -> None:
    await fleet.sender()
    async with fleet.hosting_here(proxy.url()) as host:
        keeper = await settled(host)
        lost = proxy.lose_reply(command("EVALSHA", "EVAL", sha=SENDING.sha))
        await keeper.pass_on("second", ["target"])
        lost.assert_fired(1)
        await fleet.drained()
    assert await fleet.applied("target") == ["a>second"]


async def test_a_claim_whose_reply_was_lost_claims_the_same_again(fleet: Fleet, proxy: Proxy) -> None:
    """In the middle of an activation's life, when nothing older can be pending: this one now is."""
    await fleet.sender()
    async with fleet.hosting_here(proxy.url()) as host:
        keeper = await settled(host)
        lost = proxy.lose_reply(command("EVALSHA", "EVAL", sha=CLAIM.sha))
        nudged = activation_of(host, "a")
        assert nudged.is_idle
        with without_nudges(host):
            sent = await keeper.add.send("second")
            nudged.mark()
            await until(lambda: lost.count, what="the claim's reply to be lost")
            assert await sent.result(timeout=GUARD) == 2
        assert activation_of(host, "a") is nudged, "it was not even loaded again"


async def settled(host: Cluster) -> Any:
    """Return a keeper in memory on a host that has nothing else to look for."""
    keeper = host.entity(Lodger, "a")
    assert await keeper.add("first") == 1
    await host.poll()
    await until(lambda: activation_of(host, "a").is_idle, what="it to wait for messages")
    return keeper


def activation_of(host: Cluster, id: str) -> EntityActivation:
    shard = str(host.shard_of(Lodger, id))
    return entity_host(host).shards[shard].activations[f"lodger:{id}"]


@contextmanager
def without_nudges(host: Cluster) -> Iterator[None]:
    """Nudges about messages get lost."""
    assert host._runner is not None
    handlers = host._runner.messaging.inbox.handlers
    heard = handlers.pop(b"m")
    yield
    handlers[b"m"] = heard


def entity_host(host: Cluster) -> EntityHost:
    assert host._runner is not None
    assert host._runner.host is not None
    return host._runner.host
