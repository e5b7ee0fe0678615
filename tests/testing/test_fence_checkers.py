"""Each judge of fences and owners rejects known-bad histories by the invariant and passes good ones."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_cluster_kit.testing import InvariantBrokenError, Verdict, together
from redis_cluster_kit.testing.checkers import (
    Commit,
    Grant,
    Install,
    Load,
    OwnershipEvent,
    Span,
    commit_fences,
    commit_spans,
    fences_increase,
    no_stale_commit,
    one_owner,
    ownership_spans,
    recovery,
    takeover_state,
)


def grant(fence: int, begin: float, end: float, *, nonce: str = "", shard: str = "s") -> Grant:
    return Grant(shard, fence, nonce or f"n{fence}", begin, end)


def commit(fence: int, begin: float = 0, end: float = 0, *, nonce: str = "", version: int = 0) -> Commit:
    return Commit("s", fence, nonce or f"n{fence}", version, completed_at=end, invoked_at=begin)


def install(fence: int, begin: float, end: float, *, nonce: str = "") -> Install:
    return Install("s", fence, nonce or f"n{fence}", begin, end)


def test_rising_fences_are_fine_and_concurrent_ones_need_no_order() -> None:
    grants = [grant(1, 0, 1), grant(3, 2, 5), grant(2, 2, 4), grant(7, 6, 7), grant(1, 0, 1, shard="t")]
    verdict = fences_increase(grants).require(grants=5, ordered_pairs=5)
    assert verdict.examined["ordered_pairs"] == 5


@pytest.mark.parametrize(
    "grants",
    [
        pytest.param([grant(5, 0, 1), grant(4, 2, 3)], id="goes back"),
        pytest.param([grant(5, 0, 1), grant(5, 2, 3, nonce="other")], id="repeated"),
        pytest.param([grant(5, 0, 9), grant(5, 1, 8, nonce="other")], id="repeated at once"),
        pytest.param(
            [grant(5, 0, 1), grant(6, 2, 3), grant(7, 2, 9), grant(4, 4, 5)], id="back behind a third"
        ),
        pytest.param([grant(4, 2, 3), grant(5, 0, 1)], id="order of rows does not hide it"),
    ],
)
def test_fences_that_repeat_or_go_back_break_i5(grants: list[Grant]) -> None:
    assert fences_increase(grants).invariants == {"I5"}


def lasting_grant(fence: int, begin: int, length: int) -> Grant:
    return grant(fence, begin, begin + length)


GRANTS = st.lists(
    st.builds(
        lasting_grant,
        st.integers(1, 6),
        st.integers(0, 20),
        st.integers(0, 6),
    ),
    max_size=7,
)


@given(GRANTS)
def test_fences_increase_agrees_with_its_definition(grants: list[Grant]) -> None:
    pairs = [(a, b) for a in grants for b in grants if a.completed_at < b.invoked_at]
    fences = [g.fence for g in grants]
    bad = any(a.fence >= b.fence for a, b in pairs) or len(set(fences)) < len(fences)
    verdict = fences_increase(grants)
    assert bool(verdict.violations) == bad
    assert verdict.examined["ordered_pairs"] == len(pairs)


def test_a_resources_own_log_may_only_rise() -> None:
    good = [commit(1), commit(1), commit(4), commit(4), commit(5)]
    commit_fences(good).require(commits=5, fence_changes=2)
    back = commit_fences([*good, commit(4)])
    assert back.invariants == {"I1"}
    assert "fence 4 committed after 5" in str(back.violations[0])


def test_two_nonces_at_one_fence_break_i1() -> None:
    """The equal-fence twin, which `fence <= :fence` alone lets through."""
    twins = [commit(3, nonce="a"), commit(3, nonce="b")]
    assert commit_fences(twins).invariants == {"I1"}
    assert no_stale_commit([], twins).invariants == {"I1"}
    assert no_stale_commit([install(3, 0, 1, nonce="a")], [commit(3, 5, 6, nonce="b")]).invariants == {"I1"}


def test_a_commit_under_a_past_fence_is_fine_only_if_it_was_asked_before_the_install_was_done() -> None:
    installs = [install(1, 0, 1), install(2, 10, 12)]
    fine = [commit(1, 2, 3), commit(1, 11, 13), commit(1, 9, 20), commit(2, 13, 14)]
    no_stale_commit(installs, fine).require(installs=2, commits=4, fence_changes=1, ordered_pairs=4)
    stale = no_stale_commit(installs, [*fine, commit(1, 12.5, 15)])
    assert stale.invariants == {"I1"}
    assert "under fence 1 after 2 was installed" in str(stale.violations[0])


def test_a_newer_commit_proves_its_install_even_if_nobody_recorded_it() -> None:
    assert no_stale_commit([], [commit(2, 1, 2), commit(1, 3, 4)]).invariants == {"I1"}


def test_a_commit_without_a_beginning_cannot_be_judged_and_shows_it() -> None:
    verdict = no_stale_commit([install(2, 0, 1)], [Commit("s", 1, "n1", completed_at=5)])
    assert not verdict.violations
    with pytest.raises(InvariantBrokenError, match="ordered_pairs"):
        verdict.require(ordered_pairs=1)


def test_a_new_owner_must_read_what_was_committed() -> None:
    commits = [commit(1, 0, 1, version=1), commit(1, 2, 3, version=2)]
    takeover_state(commits, [Load("s", 2, 2, 5), Load("t", 1, 0, 5)]).require(loads=2, compared=1)
    assert takeover_state(commits, [Load("s", 2, 1, 5)]).invariants == {"I8"}
    # Read before install: the stale owner's commit came between, under a lower fence.
    late = [*commits, commit(1, 4, 9, version=3)]
    assert takeover_state(late, [Load("s", 2, 2, 5)]).invariants == {"I8"}


def event(owner: str, kind: str, at: float, until: float = math.inf) -> OwnershipEvent:
    return OwnershipEvent("s", owner, kind, at, until)  # type: ignore[arg-type]


def test_leases_end_by_release_by_their_deadline_or_with_their_owner() -> None:
    events = [
        event("a", "granted", 0, 5),
        event("a", "renewed", 3, 8),
        event("a", "released", 6),
        event("b", "granted", 6, 11),
        event("b", "granted", 20, 25),
        event("c", "released", 30),
    ]
    assert ownership_spans(events) == [Span("s", "a", 0, 6), Span("s", "b", 6, 11), Span("s", "b", 20, 25)]
    killed = ownership_spans(events, ends={"b": 7})
    assert killed == [Span("s", "a", 0, 6), Span("s", "b", 6, 7), Span("s", "b", 20, 25)]


def test_a_paused_owner_past_its_deadline_and_touching_spans_are_one_owner_at_a_time() -> None:
    events = [event("a", "granted", 0, 5), event("b", "granted", 5, 10), event("a", "released", 9)]
    one_owner(ownership_spans(events)).require(spans=2, neighbours=1)


@pytest.mark.parametrize(
    "spans",
    [
        pytest.param([Span("s", "a", 0, 5), Span("s", "b", 4, 9)], id="early"),
        pytest.param([Span("s", "a", 0), Span("s", "b", 100, 101)], id="never given up"),
        pytest.param([Span("s", "b", 1, 2), Span("s", "a", 0, 9)], id="inside"),
        pytest.param(
            [Span("s", "a", 0, 9), Span("s", "a", 1, 2), Span("s", "b", 8, 9)], id="behind a short one"
        ),
    ],
)
def test_two_owners_at_once_break_i1(spans: list[Span]) -> None:
    assert one_owner(spans).invariants == {"I1"}


def lasting_span(owner: str, begin: int, length: int) -> Span:
    return Span("s", owner, begin, begin + length)


SPANS = st.lists(
    st.builds(
        lasting_span,
        st.sampled_from("abc"),
        st.integers(0, 20),
        st.integers(1, 6),
    ),
    max_size=6,
)


@given(SPANS)
def test_one_owner_agrees_with_its_definition(spans: list[Span]) -> None:
    bad = any(
        x.owner != y.owner and x.begin < y.end and y.begin < x.end for x in spans for y in spans if x is not y
    )
    assert bool(one_owner(spans).violations) == bad


def test_commits_of_two_owners_must_not_interleave() -> None:
    good = [commit(1, end=1), commit(1, end=3), commit(2, end=4), commit(2, end=8)]
    one_owner(commit_spans(good)).require(neighbours=1)
    assert one_owner(commit_spans([*good, commit(1, end=5)])).invariants == {"I1"}


def test_recovery_within_its_bound() -> None:
    spans = [Span("s", "a", 0, 5), Span("s", "b", 6.5, math.inf)]
    verdict = recovery(spans, shards=["s"], begin=1, until=20, bound=2).require(gaps=1)
    assert verdict.examined["longest_gap"] == 1.5
    late = recovery(spans, shards=["s"], begin=1, until=20, bound=1)
    assert late.invariants == {"I9"}
    assert "no owner for 1.500 s" in str(late.violations[0])


@pytest.mark.parametrize(
    "spans",
    [
        pytest.param([], id="never owned"),
        pytest.param([Span("s", "a", 0, 19.5)], id="no owner at the end"),
        pytest.param([Span("s", "a", 9)], id="late at the start"),
        pytest.param([Span("t", "a", 0)], id="another shard"),
    ],
)
def test_a_stuck_shard_breaks_i9(spans: list[Span]) -> None:
    assert recovery(spans, shards=["s"], begin=1, until=20, bound=2).invariants == {"I9"}


def test_a_verdict_that_looked_at_nothing_is_no_proof() -> None:
    fences_increase([]).require()
    with pytest.raises(InvariantBrokenError, match=r"at least .*ordered_pairs.*examined only .*0"):
        fences_increase([]).require(ordered_pairs=1)
    with pytest.raises(InvariantBrokenError, match="examined only"):
        fences_increase([grant(1, 0, 1)]).require(no_such_count=1)
    with pytest.raises(InvariantBrokenError, match="I5: shard s: fence 1 granted after 2"):
        fences_increase([grant(2, 0, 1), grant(1, 2, 3)]).require()


def test_verdicts_join() -> None:
    one = Verdict(examined={"grants": 2, "longest_gap": 1.5})
    two = Verdict(examined={"grants": 3, "longest_gap": 0.5, "loads": 1})
    two.broken("I8", "text", 1)
    joined = together(one, two)
    assert joined.examined == {"grants": 5, "longest_gap": 1.5, "loads": 1}
    assert joined.invariants == {"I8"}
