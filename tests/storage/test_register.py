"""The fence register: fences only grow, whoever asks, in whatever order, and however the asking ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest

from redis_cluster_kit.errors import Execution, PersistenceFailedError
from redis_cluster_kit.storage import Database, FenceRegister
from redis_cluster_kit.testing import ChildProcess, until
from redis_cluster_kit.testing.checkers import Grant, fences_increase

TIMEOUT = 10.0
CHILDREN = Path(__file__).with_name("children.py")


@pytest.fixture
def register(database: Database, namespace: str) -> FenceRegister:
    return FenceRegister(database, namespace)


async def _one(register: FenceRegister, proposed: int = 0, nonce: str = "n") -> int:
    return (await register.grant("g", {0: proposed}, nonce, timeout=TIMEOUT))[0]


async def test_a_fence_is_the_next_one_or_the_proposed_one_if_that_is_higher(register: FenceRegister) -> None:
    proposals = (0, 0, 1, 1000, 5, 0)
    assert [await _one(register, proposed) for proposed in proposals] == [1, 2, 3, 1000, 1001, 1002]


@pytest.mark.parametrize("proposed", [2**53 + 1, 2**63 - 2])
async def test_large_fences_are_kept_to_the_last_digit(register: FenceRegister, proposed: int) -> None:
    assert [await _one(register, proposed), await _one(register)] == [proposed, proposed + 1]


async def test_one_grant_covers_many_shards_and_the_last_nonce_stands(register: FenceRegister) -> None:
    await register.grant("g", {2: 0, 7: 30}, "first", timeout=TIMEOUT)
    granted = await register.grant("g", {10: 0, 7: 0, 2: 0}, "second", timeout=TIMEOUT)
    assert granted == {2: 2, 7: 31, 10: 1}
    standing = await register.read("g", [2, 7, 9], timeout=TIMEOUT)
    assert standing == {2: (2, "second"), 7: (31, "second")}
    assert await register.grant("g", {}, "third", timeout=TIMEOUT) == {}


async def test_groups_and_namespaces_have_fences_of_their_own(database: Database, namespace: str) -> None:
    here, there = FenceRegister(database, namespace), FenceRegister(database, f"{namespace}-2")
    for _ in range(3):
        await _one(here)
    assert await here.grant("other", {0: 0}, "n", timeout=TIMEOUT) == {0: 1}
    assert await _one(there) == 1
    assert await _one(here) == 4


async def test_grants_of_many_processes_keep_their_order(
    database: Database, database_url: str, crew: Any, namespace: str
) -> None:
    """Two ask for all shards in opposite orders, two for random ones: no deadlock, no repeated fence."""
    shards = list(range(12))
    calls = [
        {"do": "grant", "namespace": namespace, "nonce": f"c{number}", "rounds": 20}
        | {"shards": shards[::-1] if number % 2 else shards, "shuffle": number > 1}
        for number in range(4)
    ]
    seen = await crew.act(database_url, calls)
    grants = [Grant(**row) for rows in seen for row in rows]
    fences_increase(grants).require(grants=40 * 12, ordered_pairs=500)


async def test_a_row_that_stays_locked_ends_the_grant_with_a_typed_error_and_no_effect(
    register: FenceRegister, database: Database, hold: Any
) -> None:
    before = await _one(register)
    async with hold(database) as held:
        await held.execute("UPDATE rck_fences SET nonce = 'somebody else'")
        # PostgreSQL's "no" must come back within the last tenth, also on a loaded machine.
        with pytest.raises(PersistenceFailedError) as failed:
            await register.grant("g", {0: 0, 1: 0}, "late", timeout=0.2 if database.is_sqlite else 2.0)
        await held.commit()
    # Both say that nothing happened: SQLite could not begin, PostgreSQL's lock timeout took it back.
    sure = Execution.NOT_EXECUTED if database.is_sqlite else Execution.REFUSED
    assert (failed.value.store, failed.value.execution) == ("database", sure)
    assert failed.value.is_retryable
    assert await register.read("g", [0, 1], timeout=TIMEOUT) == {0: (before, "somebody else")}
    assert await _one(register) == before + 1


async def test_a_grant_that_waited_continues_above_what_it_waited_for(
    register: FenceRegister, held: Any, waited_for: Any
) -> None:
    await held.execute(
        f"INSERT INTO rck_fences VALUES ('{register._namespace}', 'g', 0, 500, 'other')"  # pyright: ignore[reportPrivateUsage]
    )
    waiting = asyncio.create_task(_one(register))
    await waited_for(held)
    await held.commit()
    assert await waiting == 501


@pytest.mark.parametrize("by", ["task", "scope"])
async def test_a_cancelled_grant_leaves_the_register_usable(
    register: FenceRegister, database: Database, hold: Any, waited_for: Any, by: str
) -> None:
    before = await _one(register)
    async with hold(database) as held:
        await held.execute("UPDATE rck_fences SET nonce = 'somebody else'")
        scope = anyio.CancelScope()

        async def ask() -> None:
            with scope:
                await _one(register)

        waiting = asyncio.create_task(ask())
        await waited_for(held)
        waiting.cancel() if by == "task" else scope.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled() if by == "task" else scope.cancelled_caught
        await held.commit()
    # PostgreSQL may have granted it after all: a cancelled caller does not know.
    assert await _one(register) in ((before + 1,) if database.is_sqlite else (before + 1, before + 2))


async def test_a_grant_takes_its_rows_in_the_order_of_shards(
    postgres_database: Database, held_postgres: Any, raw_postgres: Any, namespace: str, waited_for: Any
) -> None:
    """So two takeovers cannot each hold what the other waits for: stuck at shard 0, it has not taken 1."""
    register = FenceRegister(postgres_database, namespace)
    await register.grant("g", {0: 0, 1: 0}, "n", timeout=TIMEOUT)
    lock = "SELECT fence FROM rck_fences WHERE shard = {} FOR UPDATE NOWAIT"
    await held_postgres.execute(lock.format(0))
    waiting = asyncio.create_task(register.grant("g", {1: 0, 0: 0}, "m", timeout=TIMEOUT))
    await waited_for(held_postgres)
    assert await raw_postgres(lock.format(1)) == [(1,)]
    with pytest.raises(asyncpg.LockNotAvailableError):
        await raw_postgres(lock.format(0))
    await held_postgres.commit()
    assert await waiting == {0: 2, 1: 2}


# --- A process that stands still inside a transaction ---


async def _stopped_child(url: str, namespace: str, child: ChildProcess) -> None:
    await child.send({"url": url, "ttl": 1, "do": "stop_inside_transaction", "namespace": namespace})
    await child.wait_for("ready")
    await child.send("go")
    await child.wait_for("inside")
    # It stops itself. A second stop from here could come first, and waking would then wake it only from that.
    await until(lambda: child.state == "T", what="the child to stand still")


async def test_a_stopped_transaction_ends_before_its_lease_does_on_postgres(
    postgres_database: Database, postgres_url: str, namespace: str
) -> None:
    register = FenceRegister(postgres_database, namespace)
    before = await _one(register)
    async with ChildProcess(f"{CHILDREN}:serve") as child:
        await _stopped_child(postgres_url, namespace, child)
        assert await _one(register, nonce="successor") == before + 1
        assert child.state == "T"
        await child.wake()
        assert "PersistenceFailedError" in (await child.wait_for("done"))["error"]
    assert await register.read("g", [0], timeout=TIMEOUT) == {0: (before + 1, "successor")}


async def test_a_stopped_transaction_blocks_sqlite_until_its_process_is_gone(
    sqlite_database: Database, sqlite_url: str, namespace: str
) -> None:
    register = FenceRegister(sqlite_database, namespace)
    before = await _one(register)
    async with ChildProcess(f"{CHILDREN}:serve") as child:
        await _stopped_child(sqlite_url, namespace, child)
        with pytest.raises(PersistenceFailedError, match="lock") as failed:
            await register.grant("g", {0: 0}, "successor", timeout=0.2)
        assert failed.value.execution is Execution.NOT_EXECUTED
        assert await register.read("g", [0], timeout=TIMEOUT) == {0: (before, "n")}  # readers go on
        await child.kill()
        assert await _one(register, nonce="successor") == before + 1
