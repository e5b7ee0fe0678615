"""A rolling deploy: a runner that serves more types, or fewer, takes its share and nothing it lacks."""

from __future__ import annotations

import pytest

from redis_cluster_kit.clock import Clock

from .crew import Crew

pytestmark = pytest.mark.faults

WANTED = {"0": ["account"], "1": ["account"], "2": ["account"], "3": ["account", "cart"]}


async def test_a_newer_runner_takes_its_share(crew: Crew) -> None:
    await crew.join("a", "b", serves=["account", "cart"], wants=WANTED)
    await crew.shared()
    await crew.serves()
    joined = Clock.boot()
    await crew.join("new", serves=["account", "cart", "wish"], wants=WANTED)
    await crew.shared()
    assert len(crew.owned("new")) in (2, 3)
    await crew.serves(joined)
    for name in ("a", "b"):  # the others go, one after the other, as their newer selves come
        await crew.join(f"new-{name}", serves=["account", "cart", "wish"], wants=WANTED)
        await crew.shared()
        crew.children[name].terminate()
        await crew.children[name].wait_for("left")
        await crew.children[name].wait()
        await crew.shared()
    await crew.serves()
    await crew.healthy()
    crew.verdict().require(ordered_pairs=50, commits=30, fence_changes=8)


async def test_a_runner_that_serves_fewer_types_gets_no_shard_that_wants_them(crew: Crew) -> None:
    await crew.join("a", "b", serves=["account", "cart"], wants=WANTED)
    await crew.shared()
    await crew.serves()
    joined = Clock.boot()
    await crew.join("canary", serves=["cart"])
    await crew.shared()
    assert len(crew.owned("canary")) in (2, 3)
    wanting = {f"default:{number}" for number in WANTED}
    assert not wanting & set(crew.first("gained", joined, of=("canary",)))
    await crew.serves(joined)
    killed = await crew.kill("a")
    await crew.serves(killed)
    assert not wanting & set(crew.first("gained", joined, of=("canary",)))
    await crew.shared()
    await crew.healthy()
    crew.verdict().require(ordered_pairs=50, commits=30, fence_changes=4)
