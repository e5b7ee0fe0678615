"""The shard of a singleton goes only to members that serve it, while one does; a property of the plan."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redis_cluster_kit.identity import ShardId, shard_number
from redis_cluster_kit.ownership import SINGLETON, Member
from redis_cluster_kit.ownership.plan import plan_shards

NAMES = [f"s{number}" for number in range(12)]
_serves = st.sets(st.sampled_from(NAMES))


def member(place: int, names: set[str], **more: bool) -> Member:
    serves = {"g": ["account", *(f"{SINGLETON}{name}" for name in sorted(names))]}
    return Member(runner_id=f"r{place}", serves=serves, **more)


@given(st.lists(_serves, min_size=1, max_size=6), st.integers(1, 40))
def test_whoever_owns_it_serves_it_if_anybody_does(served: list[set[str]], count: int) -> None:
    """A shard with several singletons goes to one that serves as many of them as anybody."""
    members = {f"r{place}": member(place, names) for place, names in enumerate(served)}
    plan = plan_shards({"g": count}, members, {}, 0)
    assert plan.keys() == {ShardId("g", number) for number in range(count)}
    for number in range(count):
        wanted = {name for name in NAMES if shard_number("singleton", name, count) == number}
        wanted &= set().union(*served)
        owner = served[int(plan[ShardId("g", number)][1:])]
        assert len(owner & wanted) == max(len(names & wanted) for names in served)


def test_a_draining_member_wants_nothing() -> None:
    members = {"r0": member(0, {"s1"}, draining=True), "r1": member(1, set())}
    assert set(plan_shards({"g": 4}, members, {}, 0).values()) == {"r1"}
