"""Leaders that are killed, asked to go, or stopped and woken: who follows, and what the old one can still do."""

from __future__ import annotations

import json

import pytest

from redis_cluster_kit.testing import until

from .conftest import PATIENCE, OpenPods, acknowledged

pytestmark = pytest.mark.faults


async def test_after_a_kill_another_goes_on_from_the_last_acknowledged_state(
    open_pods: OpenPods, database_url: str
) -> None:
    async with open_pods(3, database_url) as pods:
        everybody = list(pods.pods)
        leader, first = await pods.leader()
        await leader.wait_for("saved", where=lambda event: event["seen"] >= 5, timeout=PATIENCE)
        killed = await leader.kill()
        pods.without(leader)
        last = max(event["seen"] for event in acknowledged([leader]))
        _, second = await pods.leader(after=killed.sent)
        assert second["seen"] >= last
        assert second["fence"] > first["fence"]
        assert not [event for event in leader.events if event.name == "lost"]
        seen = [event["seen"] for event in acknowledged(everybody)]
        assert len(seen) == len(set(seen))


async def test_a_leader_that_is_asked_to_go_runs_its_hook_and_hands_over(
    open_pods: OpenPods, database_url: str
) -> None:
    async with open_pods(2, database_url) as pods:
        leader, first = await pods.leader()
        await leader.wait_for("saved", timeout=PATIENCE)
        asked = leader.terminate()
        pods.without(leader)
        _, second = await pods.leader(after=asked.sent)
        await leader.wait_for("left", timeout=PATIENCE)
        assert await leader.wait() == 0
        (lost,) = (event for event in leader.events if event.name == "lost")
        assert lost["fence"] == first["fence"]
        assert lost.t_boot < second.t_boot
        assert second["seen"] == max(event["seen"] for event in acknowledged([leader]))


@pytest.mark.parametrize("sight", ["knowing its lease", "blind"])
async def test_a_stopped_and_woken_leader_changes_nothing(
    open_pods: OpenPods, database_url: str, sight: str
) -> None:
    """Blind, it does not look at its own deadline: the database and Redis refuse, each by itself."""
    async with open_pods(2, database_url) as pods:
        stale, first = await pods.leader()
        await stale.wait_for("saved", timeout=PATIENCE)
        if sight == "blind":
            await stale.send("blind")
            await stale.wait_for("heard", timeout=PATIENCE)
        await stale.send("stop")
        stopping = await stale.wait_for("stopping", timeout=PATIENCE)
        await until(lambda: stale.state == "T", what="the leader is stopped")
        pods.without(stale)
        present, second = await pods.leader(after=stopping.t_boot)
        assert second["seen"] == stopping["seen"]
        woken = await stale.wake()
        refused = await stale.wait_for("refused", timeout=PATIENCE)
        own = "this runner" if sight != "blind" else "database"
        assert refused["stores"] == [own, "redis"]
        assert refused["fenced"] >= 1
        lost = await stale.wait_for("lost", after=woken.sent, timeout=PATIENCE)
        assert lost["fence"] == first["fence"]
        await present.wait_for("saved", after=lost.t_boot, timeout=PATIENCE)
        stored = await pods.stored()
        assert stored.fence == second["fence"]
        assert b"\xce\x00\x0f\x42\x40" not in stored.body  # a million
        assert stored.version < 1_000_000


async def test_a_leader_stopped_inside_an_open_transaction_does_not_block_its_successor(
    open_pods: OpenPods, postgres_url: str
) -> None:
    async with open_pods(2, postgres_url) as pods:
        stale, first = await pods.leader()
        await stale.wait_for("saved", timeout=PATIENCE)
        await stale.send("stop inside")
        stopping = await stale.wait_for("stopping", timeout=PATIENCE)
        await until(lambda: stale.state == "T", what="the leader is stopped")
        pods.without(stale)
        present, second = await pods.leader(after=stopping.t_boot)
        assert second["fence"] > first["fence"]
        await present.wait_for("saved", timeout=PATIENCE)
        await stale.wake()
        await stale.wait_for("refused", timeout=PATIENCE)
        await stale.wait_for("lost", timeout=PATIENCE)


async def test_of_eight_processes_one_commits_at_a_time(open_pods: OpenPods, postgres_url: str) -> None:
    """Through two kills and one hand-off: every version is acknowledged once, fences only grow with them."""
    async with open_pods(8, postgres_url) as pods:
        everybody = list(pods.pods)
        after = 0.0
        for way in ("kill", "terminate", "kill", ""):
            leader, led = await pods.leader(after=after)
            await leader.wait_for("saved", where=lambda event, led=led: event["seen"] >= led["seen"] + 10)
            if way == "kill":
                after = (await leader.kill()).sent
            elif way:
                after = leader.terminate().sent
            if way:
                pods.without(leader)
        stored = await pods.stored()
    writes = sorted((event["seen"], event["fence"]) for event in acknowledged(everybody))
    seen = [number for number, _ in writes]
    assert len(seen) == len(set(seen)) >= 40
    fences = [fence for _, fence in writes]
    assert fences == sorted(fences)
    assert len(set(fences)) == 4
    assert stored.version >= seen[-1] - 1
    assert json.dumps(fences)
