"""The cluster's record: the first writer's stands, everybody else compares."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_cluster_kit.errors import Execution, JoinRefusedError, PersistenceFailedError
from redis_cluster_kit.storage import ClusterRecord, Database, Difference, RecordStore

TIMEOUT = 10.0

RECORD = ClusterRecord(
    database_uuid="u1",
    layout_version=1,
    partitions=16,
    shard_counts={"default": 100, "billing": 20},
    lease_nodes=("redis://a:1", "redis://b:2"),
)

records = st.builds(
    ClusterRecord,
    database_uuid=st.text(),
    layout_version=st.integers(0, 2**31),
    partitions=st.integers(1, 2**31),
    shard_counts=st.dictionaries(st.text(max_size=8), st.integers(1, 10_000), max_size=4),
    lease_nodes=st.lists(st.text(max_size=20), max_size=3).map(tuple),
)


@pytest.fixture
def store(database: Database, namespace: str) -> RecordStore:
    return RecordStore(database, namespace)


def _with(**changes: Any) -> ClusterRecord:
    fields = {name: getattr(RECORD, name) for name in RECORD.__struct_fields__}
    return ClusterRecord(**(fields | changes))


async def test_the_first_record_stands(store: RecordStore) -> None:
    assert await store.read(timeout=TIMEOUT) is None
    assert await store.write_first(RECORD, timeout=TIMEOUT) == RECORD
    assert await store.write_first(_with(database_uuid="u2"), timeout=TIMEOUT) == RECORD
    assert await store.read(timeout=TIMEOUT) == RECORD


async def test_of_runners_that_join_at_the_same_moment_one_wins(
    database: Database, database_url: str, crew: Any, namespace: str
) -> None:
    calls = [{"do": "write_first", "namespace": namespace, "uuid": f"u{number}"} for number in range(4)]
    told = await crew.act(database_url, calls)
    standing = await RecordStore(database, namespace).read(timeout=TIMEOUT)
    assert standing is not None
    assert told == [standing.database_uuid] * 4


async def test_namespaces_have_records_of_their_own(database: Database, namespace: str) -> None:
    await RecordStore(database, namespace).write_first(RECORD, timeout=TIMEOUT)
    assert await RecordStore(database, f"{namespace}-2").read(timeout=TIMEOUT) is None


@pytest.mark.parametrize(
    ("setting", "changed"),
    [("database_uuid", "u2"), ("layout_version", 2), ("partitions", 32), ("lease_nodes", ("redis://a:1",))],
)
def test_a_difference_names_the_setting_and_both_values(setting: str, changed: object) -> None:
    expected = [Difference(setting, getattr(RECORD, setting), changed)]
    assert RECORD.differences(_with(**{setting: changed})) == expected


def test_groups_differ_only_where_both_know_them() -> None:
    other = _with(shard_counts={"default": 50, "orders": 3})
    assert RECORD.differences(other) == [Difference("shard_counts[default]", 100, 50)]


async def test_groups_added_by_several_processes_at_once_are_all_there(
    database: Database, database_url: str, store: RecordStore, crew: Any, namespace: str
) -> None:
    await store.write_first(RECORD, timeout=TIMEOUT)
    calls = [
        {"do": "add_group", "namespace": namespace, "group": f"g{number}", "count": number + 1}
        for number in range(4)
    ]
    told = await crew.act(database_url, calls)
    assert all(counts[f"g{number}"] == number + 1 for number, counts in enumerate(told))
    standing = await store.read(timeout=TIMEOUT)
    assert standing is not None
    assert standing.shard_counts == RECORD.shard_counts | {f"g{number}": number + 1 for number in range(4)}


async def test_a_group_with_another_count_is_refused_and_nothing_is_added(store: RecordStore) -> None:
    await store.write_first(RECORD, timeout=TIMEOUT)
    with pytest.raises(JoinRefusedError) as refused:
        await store.add_groups({"new": 5, "billing": 21}, timeout=TIMEOUT)
    told = refused.value
    assert (told.setting, told.expected, told.found) == ("shard_counts[billing]", 20, 21)
    assert await store.read(timeout=TIMEOUT) == RECORD


async def test_groups_need_a_record(store: RecordStore, namespace: str) -> None:
    with pytest.raises(PersistenceFailedError, match=namespace) as failed:
        await store.add_groups({"g": 1}, timeout=TIMEOUT)
    assert (failed.value.execution, failed.value.is_retryable) == (Execution.REFUSED, False)


async def test_a_record_somebody_damaged_is_a_typed_error(
    store: RecordStore, raw: Callable[[str], Awaitable[object]]
) -> None:
    await store.write_first(RECORD, timeout=TIMEOUT)
    await raw("UPDATE rck_record SET record = '{\"partitions\": 1'")
    with pytest.raises(PersistenceFailedError, match="cannot be read") as failed:
        await store.read(timeout=TIMEOUT)
    assert not failed.value.is_retryable


@pytest.mark.parametrize(
    ("node", "kept"),
    [
        ("redis://user:hunter2@a:1/0", "redis://a:1/0"),
        ("rediss://:hunt@er2@a:1", "rediss://a:1"),
        ("user:hunter2@a:1", "a:1"),
        ("unix:///run/x.sock?password=hunter2", "unix:///run/x.sock"),
        ("redis://a:1", "redis://a:1"),
    ],
)
def test_a_record_keeps_no_secret_of_a_lease_node(node: str, kept: str) -> None:
    assert _with(lease_nodes=(node,)).lease_nodes == (kept,)


@given(records)
def test_a_record_survives_its_stored_form(record: ClusterRecord) -> None:
    again = ClusterRecord.from_json(record.to_json())
    assert again == record
    assert again.to_json() == record.to_json()
    assert record.differences(again) == []


def test_fields_of_a_later_release_are_ignored() -> None:
    later = RECORD.to_json().replace(b"{", b'{"added_later":[1],', 1)
    assert ClusterRecord.from_json(later) == RECORD


@given(st.binary() | st.text(st.characters()) | st.recursive(st.none(), st.lists).map(str))
def test_bytes_that_are_no_record_raise_only_our_error(data: bytes | str) -> None:
    with pytest.raises(PersistenceFailedError):
        ClusterRecord.from_json(data)
