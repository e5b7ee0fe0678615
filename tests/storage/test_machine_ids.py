"""Machine ids: one holder each, and no timestamp is ever given to two, whatever their clocks say."""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from redis_cluster_kit.errors import FencedError, PersistenceFailedError
from redis_cluster_kit.storage import Database, MachineIdLease, MachineIds, machine_ids
from redis_cluster_kit.testing import until

TIMEOUT = 10.0
MINUTE = timedelta(seconds=60)
NOW = 1_000_000_000
SPAN = 61_000  # the lease and its slack, in ms

Raw = Callable[[str], Awaitable[object]]


@pytest.fixture
def ids(database: Database, namespace: str) -> MachineIds:
    return MachineIds(database, namespace)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Leave only so many machine ids."""
    return lambda number: monkeypatch.setattr(machine_ids, "MACHINE_IDS", number)


async def _claim(ids: MachineIds, nonce: str, now_ms: int = NOW, lease: timedelta = MINUTE) -> MachineIdLease:
    return await ids.claim(nonce, now_ms, lease, timeout=TIMEOUT)


async def test_many_processes_claim_different_ids(
    database: Database, database_url: str, crew: Any, namespace: str
) -> None:
    calls = [
        {"do": "claim", "namespace": namespace, "nonce": f"c{number}", "number": 5, "now_ms": NOW}
        for number in range(4)
    ]
    claimed = [machine_id for told in await crew.act(database_url, calls) for machine_id in told]
    assert len(set(claimed)) == len(claimed) == 20
    assert all(0 <= machine_id < machine_ids.MACHINE_IDS for machine_id in claimed)


async def test_processes_that_want_the_same_last_ids_do_not_share_them(
    database: Database, database_url: str, crew: Any, namespace: str, raw: Raw
) -> None:
    """All but four are leased, so four claims at once must meet in them."""
    values = ", ".join(
        f"('{namespace}', {number}, 'x', 99999999999999, 0)" for number in range(machine_ids.MACHINE_IDS - 4)
    )
    await raw(f"INSERT INTO rck_machine_ids VALUES {values}")
    calls = [
        {"do": "claim", "namespace": namespace, "nonce": f"c{number}", "number": 1, "now_ms": NOW}
        for number in range(4)
    ]
    claimed = [told[0] for told in await crew.act(database_url, calls)]
    assert sorted(claimed) == list(range(machine_ids.MACHINE_IDS - 4, machine_ids.MACHINE_IDS))
    with pytest.raises(PersistenceFailedError, match="1024 machine ids"):
        await _claim(MachineIds(database, namespace), "one too many")


async def test_when_all_are_leased_a_claim_is_refused_until_one_is_released(
    ids: MachineIds, only: Callable[[int], None], namespace: str
) -> None:
    only(3)
    leases = [await _claim(ids, f"n{number}") for number in range(3)]
    assert {lease.machine_id for lease in leases} == {0, 1, 2}
    with pytest.raises(PersistenceFailedError, match=namespace) as full:
        await _claim(ids, "late")
    assert full.value.is_retryable
    await ids.release(leases[1], timeout=TIMEOUT)
    again = await _claim(ids, "late")
    assert (again.machine_id, again.floor_ms) == (leases[1].machine_id, leases[1].ceiling_ms)


async def test_an_id_whose_timestamps_have_passed_is_taken_before_a_new_one(ids: MachineIds) -> None:
    first = await _claim(ids, "a")
    await ids.release(first, timeout=TIMEOUT)
    soon = await _claim(ids, "b", first.ceiling_ms)
    assert soon.machine_id != first.machine_id, "its last timestamp is still this millisecond's"
    later = await _claim(ids, "c", first.ceiling_ms + 1)
    assert (later.machine_id, later.floor_ms) == (first.machine_id, first.ceiling_ms)


async def test_a_clock_set_back_gets_only_timestamps_nobody_had(
    ids: MachineIds, only: Callable[[int], None]
) -> None:
    only(1)
    first = await _claim(ids, "a")
    assert (first.floor_ms, first.ceiling_ms) == (-1, NOW + SPAN)
    assert await ids.renew(first, NOW - 500_000, timeout=TIMEOUT) == first.ceiling_ms
    await ids.release(first, timeout=TIMEOUT)
    second = await _claim(ids, "b", NOW - 500_000)
    assert (second.floor_ms, second.ceiling_ms) == (first.ceiling_ms, first.ceiling_ms + SPAN)


async def test_a_renewal_moves_the_ceiling_with_the_clock(ids: MachineIds) -> None:
    lease = await _claim(ids, "a")
    assert await ids.renew(lease, NOW + 20_000, timeout=TIMEOUT) == NOW + 20_000 + SPAN


async def test_an_id_whose_lease_ended_goes_to_another_and_its_old_holder_is_told(
    ids: MachineIds, only: Callable[[int], None]
) -> None:
    only(1)
    old = await _claim(ids, "old", lease=timedelta(milliseconds=1))

    async def taken() -> MachineIdLease | None:
        try:
            return await _claim(ids, "new")
        except PersistenceFailedError:
            return None

    new = await until(taken, what="the lease of 1 ms to end")
    assert new is not None
    assert (new.machine_id, new.floor_ms) == (old.machine_id, old.ceiling_ms)
    with pytest.raises(FencedError, match="machine id 0"):
        await ids.renew(old, NOW, timeout=TIMEOUT)
    await ids.release(old, timeout=TIMEOUT)  # not ours any more: nothing happens
    with pytest.raises(PersistenceFailedError):
        await _claim(ids, "third")
    await ids.renew(new, NOW, timeout=TIMEOUT)


async def test_namespaces_have_machine_ids_of_their_own(
    database: Database, namespace: str, only: Callable[[int], None]
) -> None:
    only(1)
    for name in (namespace, f"{namespace}-2"):
        assert (await _claim(MachineIds(database, name), "n")).machine_id == 0


async def test_no_timestamp_is_given_twice_whatever_clocks_and_holders_do(
    ids: MachineIds, only: Callable[[int], None], raw: Raw
) -> None:
    """A random walk over two ids with clocks that jump: the ranges of one id never overlap."""
    only(2)
    chance, given, held, refused = random.Random(7), dict[str, tuple[int, int, int]](), [], 0
    for turn in range(120):
        now = NOW + chance.randint(-300_000, 300_000)
        act = chance.choice(("claim", "claim", "renew", "release", "expire"))
        if act == "expire":
            await raw("UPDATE rck_machine_ids SET leased_until = 0")
        elif act == "claim":
            try:
                lease = await _claim(ids, f"n{turn}", now)
            except PersistenceFailedError:
                continue
            held.append(lease)
            given[lease.nonce] = (lease.machine_id, lease.floor_ms, lease.ceiling_ms)
        elif held:
            lease = chance.choice(held)  # perhaps one that has long lost its id
            if act == "release":
                await ids.release(lease, timeout=TIMEOUT)
                continue
            try:
                ceiling = await ids.renew(lease, now, timeout=TIMEOUT)
            except FencedError:
                refused += 1
            else:
                given[lease.nonce] = (lease.machine_id, lease.floor_ms, ceiling)
    ranges = sorted(given.values())
    assert len(ranges) > 15
    assert refused > 3
    for (one, _, ceiling), (other, floor, _) in itertools.pairwise(ranges):
        assert one != other or floor >= ceiling
