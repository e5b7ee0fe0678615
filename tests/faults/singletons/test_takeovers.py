"""Leaders killed, asked to go, or stopped and woken: who follows, and what the old one can still do."""

from __future__ import annotations

import pytest

from redis_cluster_kit.testing import until

from .conftest import PATIENCE, OpenPods, acknowledged

pytestmark = pytest.mark.faults


async def test_after_a_kill_another_goes_on_from_the_last_acknowledged_state(
    open_pods: OpenPods, database_url: str
) -> None:
    async with open_pods(3, database_url) as pods:
        everybody = list(pods.pods)
        await pods.saved(beyond=5)
        leader, first = await pods.leader()
        killed = await leader.kill()
        pods.without(leader)
        last = max(event["seen"] for event in acknowledged([leader]))
        _, second = await pods.leader(after=killed.sent)
        assert second["seen"] >= last
        assert second["fence"] > first["fence"]
        assert not [one for one in leader.events if one.name == "lost" and one["fence"] == first["fence"]]
        seen = [event["seen"] for event in acknowledged(everybody)]
        assert len(seen) == len(set(seen))


async def test_a_leader_that_is_asked_to_go_runs_its_hook_and_hands_over(
    open_pods: OpenPods, database_url: str
) -> None:
    async with open_pods(2, database_url) as pods:
        leader, first = await pods.leader()
        asked = leader.terminate()
        pods.without(leader)
        _, second = await pods.leader(after=asked.sent)
        await leader.wait_for("left", timeout=PATIENCE)
        assert await leader.wait() == 0
        (lost,) = (one for one in leader.events if one.name == "lost" and one["fence"] == first["fence"])
        assert lost.t_boot < second.t_boot
        told = max(event["seen"] for event in acknowledged([leader]))
        assert second["seen"] in (told, told + 1)  # the last write ended, and nobody was there to hear it


@pytest.mark.parametrize("sight", ["knowing its lease", "blind"])
async def test_a_stopped_and_woken_leader_changes_nothing(
    open_pods: OpenPods, database_url: str, sight: str
) -> None:
    """Blind, it does not look at its own deadline: the database and Redis refuse, each by itself."""
    async with open_pods(2, database_url) as pods:
        stale, first = await pods.leader()
        if sight == "blind":
            await stale.send("blind")
            await stale.wait_for("heard", timeout=PATIENCE)
        await stale.send("stop")
        stopping = await stale.wait_for("stopping", timeout=PATIENCE)
        await until(lambda: stale.state == "T", what="the leader is stopped")
        pods.without(stale)
        present, second = await pods.leader(after=stopping.t_boot)
        assert second["seen"] == stopping["seen"]
        assert second["fence"] > first["fence"]
        woken = await stale.wake()
        refused = await stale.wait_for("refused", timeout=PATIENCE)
        own = "this runner" if sight != "blind" else "database"
        assert refused["stores"] == [own, "redis"]
        assert refused["fenced"] >= 1
        lost = await stale.wait_for("lost", after=woken.sent, timeout=PATIENCE)
        assert lost["fence"] == first["fence"]
        pods.pods = [stale, present]  # woken, it is a runner like any other, and may lead again
        await pods.saved(beyond=max(event["seen"] for event in acknowledged(pods.pods)))
        stored = await pods.stored()
        assert stored.fence >= second["fence"]
        assert b"\xce\x00\x0f\x42\x40" not in stored.body  # a million
        assert stored.version < 1_000_000


async def test_a_leader_stopped_inside_an_open_transaction_does_not_block_its_successor(
    open_pods: OpenPods, postgres_url: str
) -> None:
    async with open_pods(2, postgres_url) as pods:
        stale, first = await pods.leader()
        await stale.send("stop inside")
        stopping = await stale.wait_for("stopping", timeout=PATIENCE)
        await until(lambda: stale.state == "T", what="the leader is stopped")
        pods.without(stale)
        _, second = await pods.leader(after=stopping.t_boot)  # it has saved: the rows were let go
        assert second["fence"] > first["fence"]
        woken = await stale.wake()
        lost = await stale.wait_for("lost", after=woken.sent, timeout=PATIENCE)
        assert lost["fence"] == first["fence"]


async def test_of_eight_processes_one_commits_at_a_time(open_pods: OpenPods, postgres_url: str) -> None:
    """Through two kills and one hand-off: every version is acknowledged once, fences only grow with them."""
    async with open_pods(8, postgres_url) as pods:
        everybody = list(pods.pods)
        newest = 0
        for end in ("kill", "terminate", "kill"):
            newest = await pods.saved(beyond=newest + 10)
            leader, _ = await pods.leader()
            pods.without(leader)
            if end == "kill":
                await leader.kill()
            else:
                leader.terminate()
        await pods.saved(beyond=newest + 10)
        stored = await pods.stored()
    writes = sorted((event["seen"], event["fence"]) for event in acknowledged(everybody))
    seen = [number for number, _ in writes]
    assert len(seen) == len(set(seen)) >= 40
    fences = [fence for _, fence in writes]
    assert fences == sorted(fences)
    assert len(set(fences)) >= 4
    assert stored.version >= newest + 10
