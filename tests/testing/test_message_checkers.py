"""Each judge of messages, mailboxes, ticks and registers rejects known-bad histories by the invariant."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redis_cluster_kit.testing import RegisterOperation
from redis_cluster_kit.testing.checkers import (
    Effect,
    MailboxCount,
    SearchTooLargeError,
    Sent,
    bound,
    cron_ticks,
    duplicates,
    exactly_once,
    linearizable,
    send_order,
)

SENT = [
    Sent("m1", "a", "x", 1),
    Sent("m2", "a", "x", 2),
    Sent("m3", "b", "x", 1),
    Sent("m4", "a", "x", 3, "rejected"),
    Sent("m5", "a", "x", 4, "unknown"),
]


def effects(*messages: str, entity: str = "x") -> list[Effect]:
    return [Effect(message, entity) for message in messages]


def test_each_accepted_message_has_one_effect() -> None:
    exactly_once(SENT, effects("m1", "m3", "m2")).require(accepted=3, rejected=1, unknown=1, effects=3)
    exactly_once(SENT, effects("m1", "m3", "m2", "m5")).require(effects=4)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        pytest.param(effects("m1", "m2"), "m3: accepted, and has no effect", id="lost"),
        pytest.param(effects("m1", "m2", "m3", "m1"), "m1: 2 effects", id="twice"),
        pytest.param(effects("m1", "m2", "m3", "m5", "m5"), "m5: 2 effects", id="unknown and twice"),
        pytest.param(effects("m1", "m2", "m3", "m4"), "m4: rejected", id="rejected but done"),
        pytest.param(effects("m1", "m2", "m3", "m9"), "m9: an effect on x that nobody sent", id="invented"),
        pytest.param([*effects("m1", "m2"), Effect("m3", "y")], "m3: accepted", id="on another entity"),
    ],
)
def test_losses_and_repeats_break_i2(found: list[Effect], text: str) -> None:
    verdict = exactly_once(SENT, found)
    assert verdict.invariants == {"I2"}
    assert text in "\n".join(map(str, verdict.violations))


def test_losses_may_be_counted_where_a_tier_allows_them() -> None:
    verdict = exactly_once(SENT, effects("m1"), losses="count").require()
    assert verdict.examined["lost"] == 2
    assert exactly_once(SENT, effects("m1", "m1"), losses="count").invariants == {"I2"}


def test_a_message_listed_twice_is_a_mistake_of_the_test() -> None:
    with pytest.raises(ValueError, match="each message once"):
        exactly_once([SENT[0], SENT[0]], effects("m1"))


def test_effects_of_one_sender_come_in_its_order() -> None:
    send_order(SENT, effects("m3", "m1", "m2", "m5")).require(effects=4, ordered_pairs=2)
    send_order(SENT, effects("m1", "m5")).require(ordered_pairs=1)  # a gap is a loss, not a disorder
    send_order(SENT, effects("m1", "m2", "m1")).require()  # a repeat is I4's affair


@pytest.mark.parametrize("order", [("m2", "m1"), ("m1", "m5", "m3", "m2")])
def test_disorder_breaks_i3(order: Sequence[str]) -> None:
    assert send_order(SENT, effects(*order)).invariants == {"I3"}


def test_repeats_in_an_entitys_list_break_i4() -> None:
    duplicates({"x": ["m1", "m2"], "y": ["m1"]}).require(entities=2, messages=3)
    verdict = duplicates({"x": ["m1", "m2", "m1"]})
    assert verdict.invariants == {"I4"}
    assert "m1 handled 2 times" in str(verdict.violations[0])


T1, T2 = ("nightly", 100), ("nightly", 200)


@pytest.mark.parametrize(
    ("rows", "done", "expected"),
    [
        pytest.param([T1, T1], [T1], [], id="two rows"),
        pytest.param([T1], [T1, T1], [], id="two effects"),
        pytest.param([T1], [T1, T2], [], id="effect without row"),
        pytest.param([T1, T2], [T1], [], id="row without effect"),
        pytest.param([T1], [T1], [T1, T2], id="missed"),
    ],
)
def test_ticks_twice_or_missing_break_i6(rows: list[Any], done: list[Any], expected: list[Any]) -> None:
    assert cron_ticks(rows, done, expected).invariants == {"I6"}


def test_one_row_and_one_effect_a_tick_is_fine() -> None:
    cron_ticks([T1, T2], [T2, T1], [T1, T2]).require(rows=2, effects=2, expected=2)


def test_mailboxes_keep_their_bound_and_every_send_is_told_of() -> None:
    good = MailboxCount("x", 10, [1, 10, 3], sent=20, accepted=12, rejected=7, unknown=1)
    bound([good]).require(mailboxes=1, rejected=7, longest=10)
    over = MailboxCount("x", 10, [11], sent=11, accepted=11, rejected=0)
    untold = MailboxCount("x", 10, [1], sent=5, accepted=3, rejected=1)
    assert bound([over]).invariants == bound([untold]).invariants == {"I7"}


def read(result: Any, begin: float, end: float) -> RegisterOperation:
    return RegisterOperation("k", "read", begin, end, result=result)


def write(value: Any, begin: float, end: float) -> RegisterOperation:
    return RegisterOperation("k", "write", begin, end, value=value)


def cas(expected: Any, value: Any, done: bool | None, begin: float, end: float) -> RegisterOperation:
    return RegisterOperation("k", "cas", begin, end, value=value, expected=expected, result=done)


@pytest.mark.parametrize(
    "operations",
    [
        pytest.param([write(1, 0, 1), read(1, 2, 3)], id="in order"),
        pytest.param([write(1, 0, 9), read(1, 2, 3), read(1, 4, 5)], id="seen before it returned"),
        pytest.param([write(1, 0, math.inf), read(None, 1, 2), read(1, 5, 6)], id="unknown, done late"),
        pytest.param([write(1, 0, math.inf), read(None, 5, 6)], id="unknown, never done"),
        pytest.param([cas(None, 1, True, 0, 5), cas(None, 2, False, 0, 5), read(1, 6, 7)], id="one cas wins"),
        pytest.param([cas(None, 1, None, 0, math.inf), cas(1, 2, True, 3, 4)], id="unknown cas, proven done"),
    ],
)
def test_histories_that_one_order_explains_are_linearizable(operations: list[RegisterOperation]) -> None:
    linearizable(operations).require(keys=1, operations=len(operations))


@pytest.mark.parametrize(
    "operations",
    [
        pytest.param([write(1, 0, 1), read(None, 2, 3)], id="stale read"),
        pytest.param([write(1, 0, 9), read(1, 1, 2), read(None, 3, 4)], id="goes back"),
        pytest.param([cas(None, 1, True, 0, 5), cas(None, 2, True, 0, 5)], id="two winners"),
        pytest.param([read(7, 0, 1)], id="from nowhere"),
        pytest.param([read(1, 0, 1), write(1, 2, 3)], id="from the future"),
        pytest.param([write(1, 0, 1), cas(1, 2, False, 2, 3)], id="refused without reason"),
        pytest.param([write(1, 5, math.inf), read(1, 0, 1)], id="unknown, not yet asked for"),
    ],
)
def test_histories_that_nothing_explains_are_not(operations: list[RegisterOperation]) -> None:
    verdict = linearizable(operations)
    assert verdict.invariants == {"linearizable"}
    assert verdict.violations[0].evidence


def test_registers_are_judged_each_by_itself() -> None:
    other = RegisterOperation("other", "read", 0, 1, result=9)
    verdict = linearizable([write(1, 0, 1), read(1, 2, 3), other])
    assert [str(v) for v in verdict.violations] == [
        "linearizable: register other: no order explains what was seen"
    ]


def test_a_search_that_grows_too_large_gives_up_aloud() -> None:
    many = [write(number, 0, math.inf) for number in range(14)]
    with pytest.raises(SearchTooLargeError):
        linearizable([*many, read("never", 1, 2)], limit=500)


KINDS: st.SearchStrategy[Literal["read", "write", "cas"]] = st.sampled_from(["read", "write", "cas"])


def any_operation(
    kind: Literal["read", "write", "cas"],
    begin: int,
    length: int,
    value: int,
    expected: int,
    done: bool,
    open_end: bool,
) -> RegisterOperation:
    return RegisterOperation(
        "k",
        kind,
        begin,
        math.inf if open_end else begin + length,
        value=None if kind == "read" else value,
        expected=expected if kind == "cas" else None,
        result=None if open_end else {"read": value, "write": None, "cas": done}[kind],
    )


OPERATIONS = st.lists(
    st.builds(
        any_operation,
        KINDS,
        st.integers(0, 8),
        st.integers(1, 5),
        st.integers(0, 2),
        st.integers(0, 2),
        st.booleans(),
        st.integers(0, 4).map(lambda n: n == 0),
    ),
    max_size=5,
)


@settings(max_examples=100, deadline=None)
@given(OPERATIONS)
def test_the_search_agrees_with_trying_every_order(operations: list[RegisterOperation]) -> None:
    assert bool(linearizable(operations, initial=0).violations) != _explained(operations)


def _explained(operations: list[RegisterOperation]) -> bool:
    """Try every order of every choice of open operations: slow, and hard to get wrong."""
    certain = [o for o in operations if o.completed_at < math.inf]
    unknown = [o for o in operations if o.completed_at == math.inf]
    chosen = itertools.chain.from_iterable(
        itertools.combinations(unknown, size) for size in range(len(unknown) + 1)
    )
    return any(
        _respects_time(order) and _replays(order)
        for extra in chosen
        for order in itertools.permutations([*certain, *extra])
    )


def _respects_time(order: Sequence[RegisterOperation]) -> bool:
    return all(
        later.completed_at >= earlier.invoked_at for earlier, later in itertools.combinations(order, 2)
    )


def _replays(order: Sequence[RegisterOperation]) -> bool:
    value: Any = 0
    for operation in order:
        known = operation.completed_at < math.inf
        if operation.kind == "read":
            if known and operation.result != value:
                return False
        elif operation.kind == "write":
            value = operation.value
        else:
            fits = operation.expected == value
            if known and bool(operation.result) != fits:
                return False
            value = operation.value if fits else value
    return True
