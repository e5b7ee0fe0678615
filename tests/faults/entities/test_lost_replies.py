"""The server did it and the answer got lost, once, for each script: everything still happens exactly once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.redis_access import Script
from redis_cluster_kit.testing import Proxy, command, until

from .fleet import GUARD, Fleet
from .load import Load

pytestmark = pytest.mark.faults
Call = Callable[[Any, str, str], Awaitable[Any]]

COMMIT = Script.load("turn/commit")
SENDING = COMMIT.refused_without_memory()


async def add(keeper: Any, mark: str, _: str) -> None:
    await keeper.add(mark)


async def add_and_send(keeper: Any, mark: str, _: str) -> None:
    await keeper.pass_on(mark, ["target"])


async def add_later(keeper: Any, mark: str, _: str) -> None:
    await keeper.add.options(delay=timedelta(milliseconds=50)).send(mark)


async def stumble(keeper: Any, mark: str, folder: str) -> None:
    await keeper.stumble(mark, 1, folder)


async def dawdle(keeper: Any, mark: str, _: str) -> None:
    await keeper.slow(mark, 0.3)


LOSSES: list[tuple[str, str, Call | None]] = [
    ("a send's append", Script.load("mailbox/append").sha, None),
    ("an ask's append", Script.load("mailbox/append").sha, add),
    ("a claim", Script.load("mailbox/claim").sha, add),
    ("a commit", COMMIT.sha, add),
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
    fleet: Fleet, valkey: RedisServer, tmp_path: Path, sha: str, call: Call | None
) -> None:
    async with Proxy.to("127.0.0.1", valkey.port) as proxy:
        async with fleet.hosting_here(proxy.url()) as host:
            await fleet.sender(proxy.url())
            lost = proxy.lose_reply(command("EVALSHA", "EVAL", sha=sha))
            load = Load(
                fleet,
                ("a", "b"),
                senders=2,
                call=None if call is None else lambda keeper, mark: call(keeper, mark, str(tmp_path)),
            )
            async with load:
                await load.acknowledged(20)
            await until(lambda: lost.count, timeout=GUARD, what="the reply to be lost")
            after = Load(fleet, ("a", "b"), call=load.call)
            async with after:
                await after.acknowledged(4)
            await fleet.drained()
            lost.assert_fired(1)
            assert not load.errors.keys() | after.errors.keys()
            assert host._runner is not None
            assert host._runner.host is not None
            assert host._runner.host.counters.buried == 0
            await fleet.only_state_stays()
        (await load.judge(after)).require(accepted=24)
        if call is add_and_send:
            for id in ("a", "b"):
                assert await fleet.passed_on("target", id) == await fleet.applied(id)
