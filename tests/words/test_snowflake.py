"""Snowflakes: their parts, and a generator that never repeats, goes back or leaves its reserved range."""

from __future__ import annotations

import copy
import itertools
import pickle
import threading
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_cluster_kit import codec
from redis_cluster_kit.errors import ClusterReason, Execution, MalformedMessageError, PersistenceFailedError
from redis_cluster_kit.snowflake import EPOCH_MS, Snowflake, SnowflakeGenerator

NOW = EPOCH_MS + 90_000_000_000
LAST_MS = EPOCH_MS + 2**41 - 1

timestamps = st.integers(EPOCH_MS, LAST_MS)
machines = st.integers(0, 1023)
sequences = st.integers(0, 4095)


class Wall:
    """A wall clock that shows what the test sets."""

    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def test_the_epoch_is_the_documented_day() -> None:
    assert datetime.fromtimestamp(EPOCH_MS / 1000, UTC) == datetime(2024, 1, 1, tzinfo=UTC)
    assert Snowflake(0).datetime == datetime(2024, 1, 1, tzinfo=UTC)


def test_golden_value() -> None:
    made = Snowflake.compose(timestamp=1_800_000_000_123, machine_id=517, sequence=4001)
    assert made == 402371327289221025
    assert (made.timestamp, made.machine_id, made.sequence) == (1_800_000_000_123, 517, 4001)
    assert made.datetime == datetime(2027, 1, 15, 8, 0, 0, 123_000, tzinfo=UTC)
    assert f"{made}" == str(made) == "402371327289221025"


@given(timestamps, machines, sequences)
def test_parts_survive(timestamp: int, machine_id: int, sequence: int) -> None:
    made = Snowflake.compose(timestamp=timestamp, machine_id=machine_id, sequence=sequence)
    assert 0 <= made < 2**63
    assert (made.timestamp, made.machine_id, made.sequence) == (timestamp, machine_id, sequence)
    assert made.datetime == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp)
    for twin in (pickle.loads(pickle.dumps(made)), copy.copy(made), Snowflake(int(made))):
        assert type(twin) is Snowflake
        assert twin == made


@given(timestamps, machines, sequences)
def test_travels_as_an_int(timestamp: int, machine_id: int, sequence: int) -> None:
    made = Snowflake.compose(timestamp=timestamp, machine_id=machine_id, sequence=sequence)
    sent = codec.encode({"ids": [made]})
    assert sent == codec.encode({"ids": [int(made)]})
    twin = codec.decode(sent, dict[str, list[Snowflake]])["ids"][0]
    assert (type(twin), twin) == (Snowflake, made)


@pytest.mark.parametrize("value", [-1, "7", True, 1.0, None, 2**63])
def test_what_is_no_snowflake_is_malformed(value: object) -> None:
    with pytest.raises(MalformedMessageError):
        codec.decode(codec.encode(value), Snowflake)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("timestamp", EPOCH_MS - 1),
        ("timestamp", LAST_MS + 1),
        ("machine_id", -1),
        ("machine_id", 1024),
        ("sequence", -1),
        ("sequence", 4096),
    ],
)
def test_a_part_that_does_not_fit_is_named(part: str, value: int) -> None:
    parts = {"timestamp": NOW, "machine_id": 1, "sequence": 1} | {part: value}
    with pytest.raises(ValueError, match=f"{part} lies from .* got {value}"):
        Snowflake.compose(**parts)


@pytest.mark.parametrize("value", [-1, 2**63])
def test_a_number_out_of_range_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match=str(value)):
        Snowflake(value)


@given(
    st.integers(-1, NOW + 5_000),
    st.integers(0, 3_000),
    st.lists(st.tuples(st.integers(-3_000, 3_000), st.integers(1, 30)), max_size=30),
    st.sampled_from([0, 4090]),
)
def test_increases_within_its_range_whatever_the_clock_does(
    floor: int, span: int, moves: list[tuple[int, int]], burn: int
) -> None:
    wall = Wall()
    ceiling = max(floor, NOW) + span
    ids = SnowflakeGenerator(7, floor, ceiling, wall)
    issued: list[Snowflake] = []
    for move, count in [(0, burn), *moves]:
        wall.now += move
        for _ in range(count):
            try:
                issued.append(ids.next())
            except PersistenceFailedError:
                assert (
                    wall.now > ceiling or floor == ceiling or issued[-1] >> 12 >= (ceiling - EPOCH_MS) << 10
                )
    assert all(earlier < later for earlier, later in itertools.pairwise(issued))
    assert all(floor < made.timestamp <= ceiling and made.machine_id == 7 for made in issued)


@given(st.integers(0, 10_000), st.integers(1, 9_000))
def test_a_successor_never_repeats_its_predecessor(back: int, count: int) -> None:
    """Its wall clock is behind, its floor is the other's ceiling: as the machine id's lease hands it over."""
    first = SnowflakeGenerator(3, -1, NOW + 61_000, Wall())
    second = SnowflakeGenerator(3, NOW + 61_000, NOW + 122_000, Wall(NOW - back))
    assert max(first.next() for _ in range(count)) < second.next()


def test_the_wall_clock_leads() -> None:
    wall = Wall()
    ids = SnowflakeGenerator(1, -1, NOW + 100, wall)
    assert [ids.next().timestamp for _ in range(2)] == [NOW, NOW]
    wall.now += 50
    made = ids.next()
    assert (made.timestamp, made.sequence) == (NOW + 50, 0)


def test_a_full_millisecond_runs_over_into_the_next() -> None:
    ids = SnowflakeGenerator(1, -1, NOW + 1, Wall())
    made = [ids.next() for _ in range(4097)]
    assert [(item.timestamp, item.sequence) for item in made[-2:]] == [(NOW, 4095), (NOW + 1, 0)]


def test_stops_at_the_ceiling_and_goes_on_when_extended() -> None:
    ids = SnowflakeGenerator(9, NOW, NOW + 1, Wall(NOW - 1000))
    made = [ids.next() for _ in range(4096)]
    assert {item.timestamp for item in made} == {NOW + 1}
    with pytest.raises(PersistenceFailedError, match=r"machine id 9 .*renewed") as caught:
        ids.next()
    assert caught.value.reason is ClusterReason.PERSISTENCE_FAILED
    assert (caught.value.store, caught.value.execution) == ("machine ids", Execution.NOT_EXECUTED)
    assert caught.value.is_retryable
    ids.extend(NOW - 5)
    assert ids.ceiling_ms == NOW + 1
    ids.extend(NOW + 2)
    assert ids.next() == Snowflake.compose(timestamp=NOW + 2, machine_id=9, sequence=0)


def test_a_clock_past_the_ceiling_waits_for_the_renewal() -> None:
    wall = Wall(NOW + 10)
    ids = SnowflakeGenerator(9, NOW, NOW + 5, wall)
    with pytest.raises(PersistenceFailedError, match=str(NOW + 10)):
        ids.next()
    ids.extend(NOW + 10)
    assert ids.next().timestamp == NOW + 10


def test_the_last_millisecond_of_all_is_the_end() -> None:
    ids = SnowflakeGenerator(0, -1, LAST_MS + 10, Wall(LAST_MS))
    assert [ids.next() for _ in range(4096)][-1] < 2**63
    with pytest.raises(PersistenceFailedError):
        ids.next()


def test_threads_never_get_the_same_one() -> None:
    ids = SnowflakeGenerator(1, -1, NOW + 10_000, Wall())
    found: list[list[Snowflake]] = [[] for _ in range(4)]

    def take(mine: list[Snowflake]) -> None:
        mine.extend(ids.next() for _ in range(3_000))

    threads = [threading.Thread(target=take, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({made for mine in found for made in mine}) == 12_000
    assert all(mine == sorted(mine) for mine in found)


def test_a_machine_id_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="machine_id"):
        SnowflakeGenerator(1024, -1, NOW, Wall())
