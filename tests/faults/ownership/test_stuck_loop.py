"""A runner whose event loop is stuck serves nothing: it loses its shards, however well its threads run."""

from __future__ import annotations

from pathlib import Path

import pytest

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.testing import InvariantBrokenError, Mutant, mutated_tree, until

from .crew import Crew

pytestmark = pytest.mark.faults

RENEWED_BY_A_THREAD = Mutant(
    "renewal from a thread while the loop is stuck",
    "redis_cluster_kit/ownership/rebalancing.py",
    "        renewal = await self._leases.renew(held)\n",
    """
        import asyncio, copy, threading
        from redis_cluster_kit.redis_access import Lanes
        from redis_cluster_kit.settings import RedisSettings

        async def renew_for_ever():
            leases = copy.copy(self._leases)
            leases._nodes = [Lanes(node.url, RedisSettings(), role="lease") for node in self._leases._nodes]
            while True:
                await leases.renew(list(self._owned))
                print("a thread renews")
                await asyncio.sleep(self._ttl / 10)

        if not hasattr(self, "_thread"):
            self._thread = threading.Thread(target=lambda: asyncio.run(renew_for_ever()), daemon=True)
            self._thread.start()
        renewal = await self._leases.renew(held)
""",
    invariant="I9",
    test="test_a_stuck_loop_loses_its_shards",
)


async def stall(crew: Crew, way_out: Path, once: str = "") -> tuple[float, dict[str, int]]:
    """Stop the event loop of `a`, once it has said so; return since when, and what it owned."""
    await crew.join("a", "b")
    await crew.shared()
    await crew.serves()
    await until(lambda: once in crew.children["a"].tail, what=once)
    owned = crew.owned("a")
    await crew.children["a"].send({"do": "stall", "until": str(way_out)})
    begin = (await crew.children["a"].wait_for("stalling")).t_boot
    crew.stopped.add("a")
    return begin, owned


async def test_a_stuck_loop_loses_its_shards(crew: Crew, tmp_path: Path) -> None:
    begin, owned = await stall(crew, tmp_path / "go on")
    await until(lambda: set(owned) <= set(crew.first("gained", begin, of=("b",))), what="b takes them over")
    await crew.serves(begin)
    (tmp_path / "go on").touch()
    crew.stopped.discard("a")
    await until(lambda: set(owned) <= set(crew.first("lost", begin, of=("a",))), what="it steps down")
    await crew.shared()
    crew.spans_verdict(begin, Clock.boot(), 30, {"a": begin}).require(shards=8, gaps=len(owned))
    crew.verdict().require(ordered_pairs=50, commits=30, fence_changes=len(owned))


async def test_a_renewing_thread_is_caught(crew: Crew, tmp_path: Path) -> None:
    crew.pythonpath = [mutated_tree(RENEWED_BY_A_THREAD, tmp_path / "mutant")]
    crew.ttl = 2.0  # a busy machine must not take away what the thread is to keep
    begin, owned = await stall(crew, tmp_path / "go on", once="a thread renews")
    bound = 2 * (crew.ttl + 1)
    await until(lambda: Clock.boot() > begin + bound + 1, what="twice what a takeover may take")
    assert not set(owned) & set(crew.first("gained", begin, of=("b",)))
    with pytest.raises(InvariantBrokenError, match="no owner for"):
        crew.spans_verdict(begin, Clock.boot(), bound, {"a": begin}).require(shards=8)
    verdict = crew.spans_verdict(begin, Clock.boot(), bound, {"a": begin})
    assert verdict.invariants == {RENEWED_BY_A_THREAD.invariant}
    assert RENEWED_BY_A_THREAD.test in globals()
    (tmp_path / "go on").touch()
    crew.stopped.discard("a")
