"""Ticks: one for each instant, what their functions see, and what becomes of those that fail."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import anyio
import pytest

from redis_cluster_kit import (
    Cluster,
    ClusterContext,
    Registry,
    Snowflake,
    Tick,
    current,
)
from redis_cluster_kit.entity import Entity, current_turn, rpc
from redis_cluster_kit.errors import JoinRefusedError
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, Rows, at_once, planned, quiet

EVERY_SECOND = "* * * * * *"


async def test_one_tick_for_each_second_somewhere(make_cluster: MakeCluster, rows: Rows) -> None:
    ran: Counter[datetime] = Counter()
    where: Counter[str] = Counter()
    registry = Registry()

    @registry.cron(EVERY_SECOND, name="clock")
    async def clock(tick: Tick) -> None:
        ran[tick.scheduled] += 1
        where[current().runner_id] += 1

    async with make_cluster(include=[registry]) as one, make_cluster(include=[registry]) as two:
        await until(lambda: len(ran) >= 3, timeout=20, what="three ticks")
        await until(lambda: len(planned(one)) + len(planned(two)) == 1, what="one plans")
    assert set(ran.values()) == {1}
    assert all(scheduled.microsecond == 0 and scheduled.tzinfo is UTC for scheduled in ran)
    instants = sorted(ran)
    assert instants[-1] - instants[0] == timedelta(seconds=len(instants) - 1)
    stored = await rows("SELECT scheduled, status FROM rck_cron_instant ORDER BY scheduled")
    if stored[-1][1] == "pending":  # it was planned a moment before its instant, and they have left
        stored.pop()
    assert [status for _, status in stored] == ["done"] * len(ran)
    assert [scheduled for scheduled, _ in stored] == [int(one.timestamp() * 1000) for one in instants]


async def test_what_a_tick_sees(make_sqlite_cluster: MakeCluster) -> None:
    seen: list[tuple[Tick, ClusterContext, Snowflake]] = []
    registry = Registry()

    @registry.cron(EVERY_SECOND, name="look")
    async def look(tick: Tick) -> None:
        assert current_turn() is None
        await tick.heartbeat()
        assert tick.resource(str) == "here"
        seen.append((tick, current(), tick.generate_id()))

    async with make_sqlite_cluster(include=[registry]) as cluster:
        cluster.provide(str, "here")
        await until(lambda: seen, timeout=10, what="a tick")
        tick, context, _ = seen[0]
        assert context.is_leader
        assert context.entity_type is None
        assert context.entity_id is None
        assert context.fence == tick.fence > 0
        assert context.attempt == tick.attempt == 1
        assert context.runner_id == cluster.runner_id
        assert context.message_id is not None
        assert tick.name == "look"
        assert tick.cluster is cluster
        assert repr(tick) == f"Tick('look', {tick.scheduled.isoformat()}, attempt=1)"
        instant = tick.scheduled.strftime("%Y-%m-%dT%H:%M:%SZ")
        assert context.message_id.endswith(f"@default:cron.look:{instant}")
        assert context.shard_id is not None
    assert look.__name__ == "look"


class Box(Entity[None], name="box"):
    heard: ClassVar[list[int]] = []

    @rpc
    async def put(self, number: int) -> None:
        self.heard.append(number)


async def test_what_a_tick_sends_goes_out_at_once(make_cluster: MakeCluster) -> None:
    Box.heard.clear()
    registry = Registry()
    go_on = anyio.Event()

    @registry.cron(EVERY_SECOND, name="sender", overlap="skip")
    async def sender(tick: Tick) -> None:
        for number in range(200):  # more than a turn may send
            await (
                tick.cluster.entity(Box, "a")
                .put.options(idempotency_key=f"{tick.scheduled}-{number}")
                .send(number)
            )
        await tick.cluster.entity(Box, "b").put(-1)
        await go_on.wait()

    async with make_cluster(include=[registry], entities=[Box]):
        await until(lambda: len(Box.heard) == 201, timeout=20, what="all arrive while it runs")
        go_on.set()


async def test_one_that_raises_is_tried_again_and_then_a_dead_letter(
    make_cluster: MakeCluster, rows: Rows
) -> None:
    attempts: list[tuple[datetime, int]] = []
    well: list[Tick] = []
    is_broken = True
    registry = Registry()

    @registry.cron("0 0 1 1 *", name="yearly", retry=at_once(3))
    async def yearly(tick: Tick) -> None:
        attempts.append((tick.scheduled, tick.attempt))
        if is_broken:
            raise RuntimeError("no")
        well.append(tick)

    with quiet("redis_cluster_kit.runtime.turns"), quiet("redis_cluster_kit.runtime.crons"):
        async with make_cluster(include=[registry]) as cluster, make_cluster(hosting=False) as outside:
            await until(lambda: planned(cluster), what="it is planned")
            scheduled = await outside.crons.trigger("yearly")
            letters = await until(cluster.dead_letters.list, what="a dead letter")
            assert attempts == [(scheduled, 1), (scheduled, 2), (scheduled, 3)]

            async def status() -> str:
                found = await rows("SELECT status FROM rck_cron_instant")
                return found[0][0]

            await until(lambda: _is(status(), "dead"), what="the row says so")
            (info,) = await outside.crons.list()
            assert (info.failures, info.run_count, info.pending) == (3, 0, 0)
            assert info.last_error == "RuntimeError: no"
            assert "cron yearly is failing: RuntimeError: no" in (await cluster.health()).reasons
            is_broken = False
            assert await outside.dead_letters.replay(letters[0].message_id)
            await until(lambda: well, what="replayed it runs again")
            await until(lambda: _is(status(), "done"), what="the row says so")
            (info,) = await outside.crons.list()
            assert (info.failures, info.run_count) == (0, 1)
            assert info.last_run is not None
            assert (await cluster.health()).ready


async def _is(found: object, expected: str) -> bool:
    return await found == expected  # type: ignore[misc]


async def test_without_a_database_crons_are_refused(make_cluster: MakeCluster) -> None:
    registry = Registry()

    @registry.cron(EVERY_SECOND, name="clock")
    async def clock(tick: Tick) -> None: ...

    with pytest.raises(JoinRefusedError, match="instants of crons"):
        async with make_cluster(include=[registry], database=None):
            pass


async def test_a_cluster_registers_crons_too(make_cluster: MakeCluster) -> None:
    ran: list[Tick] = []
    cluster: Cluster = make_cluster()

    @cluster.cron(EVERY_SECOND, name="own")
    async def own(tick: Tick) -> None:
        ran.append(tick)

    async with cluster:
        await until(lambda: ran, timeout=10, what="a tick")
