"""Runners that are killed, asked to go, or stopped and woken: who owns what, what stale ones can do."""

from __future__ import annotations

import anyio
import pytest

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.testing import until

from .crew import STORES, Crew

pytestmark = pytest.mark.faults

GUARD = 3
"""Tests use three times what is promised: the figures are the benchmark's."""


@pytest.mark.parametrize("ttl", [1.0, 5.0])
async def test_a_killed_runners_shards_have_new_owners(crew: Crew, ttl: float) -> None:
    crew.ttl = ttl
    await crew.join("a", "b", "c")
    await crew.shared()
    await crew.serves()
    lost = crew.owned("a")
    killed = await crew.kill("a")
    bound = GUARD * (ttl + 1)
    await until(
        lambda: set(lost) <= set(crew.first("gained", killed, of=("b", "c"))),
        timeout=bound,
        what="a new owner for every shard of the dead runner",
    )
    await crew.serves(killed, within=bound)
    await crew.shared()
    until_then = Clock.boot()
    crew.spans_verdict(killed, until_then, bound, {"a": killed}).require(shards=8, gaps=len(lost))
    crew.verdict().require(ordered_pairs=50, commits=30, fence_changes=len(lost))


@pytest.mark.parametrize("ttl", [1.0, 5.0])
async def test_a_runner_asked_to_go_hands_off(crew: Crew, ttl: float) -> None:
    crew.ttl = ttl
    await crew.join("a", "b", "c")
    await crew.shared()
    await crew.serves()
    leaving = crew.owned("a")
    asked = crew.children["a"].terminate().sent
    await crew.children["a"].wait_for("left", timeout=GUARD * 5)
    await crew.serves(asked)
    handed_off = crew.first("lost", asked, of=("a",))
    assert set(leaving) <= set(handed_off)
    assert all(event["handed_off"] for event in handed_off.values())
    gained = crew.first("gained", asked, of=("b", "c"))
    assert set(leaving) <= set(gained)
    crew.spans_verdict(asked, Clock.boot(), GUARD * 1.0, {}).require(shards=8)
    crew.verdict().require(ordered_pairs=50, commits=30, fence_changes=len(leaving))


@pytest.mark.parametrize("ttl", [1.0, 5.0])
async def test_a_stopped_runner_that_wakes_can_write_nowhere(crew: Crew, ttl: float) -> None:
    crew.ttl = ttl
    await crew.join("a", "b", "c")
    await crew.shared()
    await crew.serves()
    stale = crew.owned("a")
    stopped = await crew.stop("a")
    await anyio.sleep(2 * ttl)  # the fault itself: it sleeps through its leases
    await until(lambda: set(stale) <= set(crew.first("gained", stopped, of=("b", "c"))), timeout=GUARD * ttl)
    woken = await crew.wake("a")
    assert woken - stopped >= 2 * ttl
    for store in STORES:
        await until(
            lambda store=store: (
                set(stale)
                <= set(crew.first("refused", woken, of=("a",), where=lambda e: e["store"] == store))
            ),
            what=f"every stale write refused in {store}",
        )
    await until(
        lambda: set(stale) <= set(crew.first("lost", woken, of=("a",))), what="it steps down by itself"
    )
    stepped_down = crew.first("lost", woken, of=("a",))
    assert {shard: stepped_down[shard]["fence"] for shard in stale} == stale
    assert not any(stepped_down[shard]["handed_off"] for shard in stale)
    await crew.shared()
    await crew.serves()
    crew.verdict().require(ordered_pairs=50, commits=30, fence_changes=len(stale))
