"""Pods killed at random and at the worst moments: every instant has its tick, and only one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import anyio
import pytest

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import until
from redis_cluster_kit.testing.mutants import Mutant, mutated_tree
from redis_cluster_kit.testing.seeds import Seeds

from .conftest import PATIENCE, Pods

pytestmark = pytest.mark.faults


async def killing(pods: Pods, random: Random, *, times: int = 0, seconds: float = 0.0) -> int:
    """Kill one of three pods again and again, and start another; return how many were killed."""
    for place in range(3):
        await pods.start(skew=place * 2.0)
    await pods.planner()
    killed, until_then = 0, anyio.current_time() + seconds
    while killed < times or anyio.current_time() < until_then:
        await anyio.sleep(random.uniform(0.5, 2.5))
        await pods.kill(random.choice(pods.alive))
        killed += 1
        await pods.start(skew=random.choice((-2.0, 0.0, 2.0)))
    await pods.more(3)
    await pods.end()
    return killed


async def test_one_tick_for_each_instant_while_pods_are_killed_and_clocks_differ(pods: Pods) -> None:
    with Seeds.from_env() as seeds:
        assert await killing(pods, seeds.random(), times=4) == 4
        assert await pods.check() >= 5


@pytest.mark.long
async def test_a_minute_of_it(pods: Pods) -> None:
    with Seeds.from_env() as seeds:
        assert await killing(pods, seeds.random(), seconds=60) >= 10
        assert await pods.check() >= 55


async def test_a_planner_that_stopped_and_wakes_plans_nothing_twice(pods: Pods) -> None:
    for _ in range(2):
        await pods.start()
    stale = await pods.planner()
    await pods.more(2)
    await until(pods.nothing_pending, timeout=PATIENCE, what="nobody writes, which on SQLite would stop all")
    await stale.stop()
    pods.alive.remove(stale)
    await pods.planner()
    await pods.more(3)
    await stale.wake()
    pods.alive.append(stale)
    await pods.more(4)
    await pods.end()
    await pods.check()


async def die(pods: Pods, where: str, **more: object) -> str:
    """Let the planning pod, then alone, die at this moment; return what was the newest instant then."""
    first = await pods.start(**more)
    await pods.planner()
    await pods.more(1)
    await first.send(where)
    await first.wait_for("dying", timeout=PATIENCE)
    assert await first.wait() == -9
    pods.alive.remove(first)
    return max(await pods.rows())


async def test_killed_between_the_row_and_its_message(pods: Pods) -> None:
    at = await die(pods, "between")
    assert (await pods.rows())[at] == "pending"
    assert at not in pods.ran()
    await pods.start()
    await until(lambda: at in pods.ran(), timeout=10, what="the tick that had no message")
    await pods.more(2)
    await pods.end()
    await pods.check()


async def test_killed_between_plan_and_instant(pods: Pods) -> None:
    at = await die(pods, "sent", ahead=800)
    (dying,) = pods.told("dying")
    assert dying["early"] > 100, "the instant was yet to come"
    assert (await pods.rows())[at] == "pending"
    assert at not in pods.ran()
    await pods.start(ahead=800)
    await until(lambda: at in pods.ran(), timeout=10, what="the tick that was planned ahead")
    await pods.more(2)
    await pods.end()
    await pods.check()


async def test_killed_between_a_tick_and_its_commit(pods: Pods) -> None:
    at = await die(pods, "after done")
    assert (await pods.rows())[at] == "done"
    await pods.start()
    await pods.more(3)
    await pods.end()
    await pods.check()
    assert len([event for event in pods.told("began") if event["at"] == at]) == 1


async def test_killed_inside_a_tick(pods: Pods) -> None:
    at = await die(pods, "inside")
    assert (await pods.rows())[at] == "pending"
    await pods.start()
    await until(lambda: at in pods.ran(), timeout=10, what="the tick that was cut short")
    await pods.end()
    await pods.check()
    assert [event["attempt"] for event in pods.told("began") if event["at"] == at] == [1, 2]


NO_OUTBOX = Mutant(
    name="rows that are not done are not sent again",
    file="redis_cluster_kit/runtime/cron_planner.py",
    old="        await self._send_pending(last)\n",
    new="",
    invariant="a tick for each row",
)
NO_LOOK = Mutant(
    name="a tick runs whatever its row says",
    file="redis_cluster_kit/storage/sql_ticks.py",
    old="status IN ('pending', 'dead')",
    new="status <> ''",
    invariant="one tick for an instant",
)


@pytest.mark.parametrize(
    ("mutant", "where"),
    [(NO_OUTBOX, "between"), (NO_LOOK, "after done")],
    ids=lambda it: getattr(it, "name", it),
)
async def test_what_is_left_out_is_noticed(
    valkey: RedisServer,
    sqlite_url: str,
    make_pods: Callable[..., Pods],
    tmp_path: Path,
    mutant: Mutant,
    where: str,
) -> None:
    pods = make_pods(valkey.url, sqlite_url)
    kit = mutated_tree(mutant, tmp_path / "kit")
    at = await die(pods, where, pythonpath=[kit])
    await pods.start(pythonpath=[kit])
    await pods.more(3)
    await pods.end()
    began = [event for event in pods.told("began") if event["at"] == at]
    if mutant is NO_OUTBOX:
        assert began == []
        assert (await pods.rows())[at] == "pending"
    else:
        assert len(began) == 2


async def test_a_wiped_redis_gets_what_is_not_done_again(
    private_valkey: RedisServer, database_url: str, make_pods: Callable[..., Pods]
) -> None:
    pods = make_pods(private_valkey.url, database_url, takes=1.5)
    for _ in range(2):
        await pods.start()
    await pods.more(2)
    with private_valkey.connect() as client:
        client.call("FLUSHALL")
    pending = {at for at, status in (await pods.rows()).items() if status == "pending"}
    assert pending
    await until(lambda: pending <= pods.ran(), timeout=PATIENCE, what="what was not done runs again")
    await pods.more(3)
    await pods.end()
    rows = await pods.rows()
    ended = [event["at"] for event in pods.told("ran")]
    assert len(set(ended)) == len(ended), "nothing runs to its end twice"
    assert set(ended) >= {at for at, status in rows.items() if status == "done"}
