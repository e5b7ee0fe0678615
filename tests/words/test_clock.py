"""The clock: what it makes of a server's answers, and that a test's offset moves `now()` only."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_cluster_kit.clock import Clock, MovableClock

SLACK = 0.05
"""What the lines of a test itself may take."""


def shift(clock: Clock) -> float:
    """How far the clock believes the server to be ahead of `boot()`."""
    return clock.now() - clock.boot()


def observe(
    clock: Clock, server_ahead: float, round_trip: float, bias: float = 0.0, age: float = 0.0
) -> None:
    """Hand over one TIME answer; `bias` in -1..1 says where in the round trip the server looked."""
    received = clock.boot() - age
    sent = received - round_trip
    looked = (sent + received) / 2 + bias * round_trip / 2
    clock.observe(looked + server_ahead, sent, received)


def test_before_the_first_answer_it_is_the_local_time() -> None:
    clock = Clock()
    assert abs(clock.now() - time.time()) < SLACK
    assert clock.skew() == 0.0


def test_boot_counts_seconds_and_never_goes_back() -> None:
    readings = [Clock.boot() for _ in range(1_000)]
    assert all(earlier <= later for earlier, later in pairwise(readings))
    started, start = time.monotonic(), Clock.boot()
    while Clock.boot() == start:
        pass
    assert 0 < Clock.boot() - start <= time.monotonic() - started + SLACK


@given(st.floats(-1e6, 1e6), st.floats(0, 2), st.floats(-1, 1))
def test_one_answer_is_right_to_half_its_round_trip(ahead: float, round_trip: float, bias: float) -> None:
    clock = Clock()
    observe(clock, ahead, round_trip, bias)
    assert abs(shift(clock) - ahead) <= round_trip / 2 + 1e-6 + SLACK


@given(st.lists(st.tuples(st.floats(0.0001, 1), st.floats(-1, 1)), min_size=1, max_size=20))
def test_the_best_round_trip_bounds_the_error(answers: list[tuple[float, float]]) -> None:
    clock = Clock()
    for round_trip, bias in answers:
        observe(clock, 1_000.0, round_trip, bias)
    best = min(round_trip for round_trip, _ in answers)
    assert abs(shift(clock) - 1_000.0) <= best / 2 + 0.002


def test_a_slow_answer_does_not_spoil_a_good_one() -> None:
    clock = Clock()
    observe(clock, 50.0, 0.001)
    observe(clock, 50.0, 1.0, bias=0.9)
    assert abs(shift(clock) - 50.0) < 0.002


def test_a_server_whose_clock_was_set_is_believed_at_once() -> None:
    clock = Clock()
    observe(clock, 50.0, 0.001)
    observe(clock, -3_600.0, 0.2)
    assert abs(shift(clock) + 3_600.0) < 0.11


def test_a_sample_loses_by_its_age() -> None:
    """After 200 s a 2 ms sample may be 41 ms off by drift: one of 40 ms, good for 20, is better."""
    clock = Clock()
    observe(clock, 50.0, 0.002, age=200.0)
    observe(clock, 50.015, 0.04)
    assert abs(shift(clock) - 50.015) < 0.001


def test_a_sample_is_forgotten_after_a_while() -> None:
    clock = Clock()
    observe(clock, 50.0, 0.002, age=301.0)
    observe(clock, 50.4, 1.0)
    assert abs(shift(clock) - 50.4) < 0.001


def test_answers_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="before sent"):
        Clock().observe(1.0, sent=2.0, received=1.0)


def test_the_three_forms_agree() -> None:
    clock = Clock()
    observe(clock, 1_000.0, 0.001)
    seconds, milliseconds, moment = clock.now(), clock.now_ms(), clock.utcnow()
    assert type(milliseconds) is int
    assert abs(milliseconds / 1000 - seconds) < SLACK
    assert abs(moment.timestamp() - seconds) < SLACK
    assert moment.utcoffset() == timedelta(0)


def test_skew_is_local_minus_server() -> None:
    clock = Clock()
    server_ahead_of_boot = time.time() - clock.boot() + 7.0
    observe(clock, server_ahead_of_boot, 0.0)
    assert abs(clock.skew() + 7.0) < SLACK


@given(st.lists(st.timedeltas(timedelta(0), timedelta(days=400)), max_size=5))
def test_a_movable_clock_moves_now_and_leaves_boot(moves: list[timedelta]) -> None:
    told: list[None] = []
    clock = MovableClock(lambda: told.append(None))
    before, boot = clock.utcnow(), clock.boot()
    for move in moves:
        clock.advance(move)
    total = sum(moves, timedelta(0))
    assert clock.offset == total
    assert len(told) == len(moves)
    assert abs(clock.utcnow() - before - total) < timedelta(seconds=1)
    assert clock.boot() - boot < 1
    assert abs(clock.skew()) < SLACK


def test_a_movable_clock_keeps_its_offset_over_an_answer() -> None:
    clock = MovableClock()
    clock.advance(timedelta(hours=1))
    observe(clock, 50.0, 0.001)
    assert abs(shift(clock) - 3_650.0) < 0.002
    assert Clock().offset == timedelta(0)


def test_time_is_moved_forward_only() -> None:
    clock = MovableClock()
    with pytest.raises(ValueError, match="forward only"):
        clock.advance(timedelta(seconds=-1))
    assert clock.utcnow() < datetime.now(UTC) + timedelta(seconds=SLACK)
