"""Durable calls of ticks: a tick is a turn, and its execution is that of its message."""

from __future__ import annotations

import contextlib
from collections import Counter
from datetime import timedelta

from redis_cluster_kit import Registry, Tick, within_cluster
from redis_cluster_kit.errors import ClusterContextRequired
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, Rows, at_once

NEVER_BY_ITSELF = "0 0 1 1 *"


async def test_a_tick_waits_durably_and_repeats_no_step(make_cluster: MakeCluster, rows: Rows) -> None:
    done: Counter[str] = Counter()
    tokens: list[str] = []
    attempts: list[int] = []
    registry = Registry()

    async def count(what: str) -> int:
        done[what] += 1
        return done[what]

    @registry.cron(NEVER_BY_ITSELF, name="report", skip_if_older_than=timedelta(milliseconds=500))
    async def report(tick: Tick) -> None:
        attempts.append(tick.attempt)
        assert await tick.step("fetch", count, "fetch") == 1
        approval = tick.deferred("approval", str)
        tokens.append(approval.token)
        assert await approval == "yes"
        await tick.sleep(timedelta(seconds=1.2))
        await tick.step("send", count, "send")

    async with make_cluster(include=[registry]) as cluster:
        await cluster.crons.trigger("report")
        host = cluster.joined_runner().host
        assert host is not None
        assert host.crons is not None
        await until(lambda: tokens and not len(host.residents), timeout=20, what="it has left memory")
        assert await cluster.complete(tokens[0], "yes")
        await until(lambda: done["send"], timeout=20, what="its end")

        async def is_done() -> bool:
            return await rows("SELECT status FROM rck_cron_instant") == [("done",)]

        await until(is_done, timeout=20, what="its row says so")
        began = sum(host.crons.counters["report"].lateness)
    assert done == {"fetch": 1, "send": 1}
    assert set(tokens) == {tokens[0]}
    assert set(attempts) == {1}, "waiting costs no attempt, and is not being late"
    assert len(attempts) == 3
    assert began == 1, "it began once, however often it went on"


async def test_a_tick_that_catches_the_end_of_its_wait_is_not_done(
    make_cluster: MakeCluster, rows: Rows
) -> None:
    went_on: list[str] = []
    registry = Registry()

    @registry.cron(NEVER_BY_ITSELF, name="greedy", retry=at_once())
    async def greedy(tick: Tick) -> None:
        with contextlib.suppress(BaseException):
            await tick.sleep(timedelta(seconds=1.2))
            went_on.append("after")

    async with make_cluster(include=[registry]) as cluster:
        await cluster.crons.trigger("greedy")
        await until(lambda: went_on, timeout=20, what="it has gone on after its wait")

        async def is_done() -> bool:
            return await rows("SELECT status FROM rck_cron_instant") == [("done",)]

        await until(is_done, timeout=20, what="its row says so")
    assert went_on == ["after"]


async def test_a_tick_that_is_over_makes_no_durable_call(make_cluster: MakeCluster) -> None:
    kept: list[Tick] = []
    registry = Registry()

    @registry.cron(NEVER_BY_ITSELF, name="keep")
    async def keep(tick: Tick) -> None:
        kept.append(tick)

    async with make_cluster(include=[registry]) as cluster:
        await cluster.crons.trigger("keep")
        await until(lambda: kept, timeout=20, what="the tick")
        await until(lambda: cluster.joined_runner().read().counters.commits, timeout=20, what="its end")
        refused = False
        with within_cluster(is_leader=True):
            try:
                await kept[0].sleep(timedelta(seconds=2))
            except ClusterContextRequired:
                refused = True
        assert refused
