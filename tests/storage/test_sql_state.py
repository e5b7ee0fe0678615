"""Singleton state: versions one by one, each written once, by the shard's present owner only."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redis_cluster_kit.errors import Execution, FencedError, PersistenceFailedError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.storage import Database, FenceRegister, SqlState
from redis_cluster_kit.storage.fenced import fenced

TIMEOUT = 10.0
NAME = "report"
SHARD = ShardId("g", 0)

Raw = Callable[[str], Awaitable[list[tuple[Any, ...]]]]


class Owner:
    """One holder of shard g:0; `write` needs only what a test is about."""

    _ids = itertools.count()

    def __init__(self, states: SqlState, nonce: str, fence: int) -> None:
        self.states, self.nonce, self.fence = states, nonce, fence

    @classmethod
    async def granted(cls, database: Database, namespace: str, nonce: str) -> Owner:
        fence = (await FenceRegister(database, namespace).grant("g", {0: 0}, nonce, timeout=TIMEOUT))[0]
        return cls(SqlState(database, namespace), nonce, fence)

    async def write(
        self, expected: int, body: bytes = b"x", *, commit_id: str | None = None, timeout: float = TIMEOUT
    ) -> int:
        written = await self.states.write(
            NAME,
            SHARD,
            fence=self.fence,
            nonce=self.nonce,
            expected_version=expected,
            body=body,
            schema_version=3,
            commit_id=commit_id or f"{self.nonce}-{next(self._ids)}",
            timeout=timeout,
        )
        return written.version


Grant = Callable[[str], Awaitable[Owner]]


@pytest.fixture
def grant(database: Database, namespace: str) -> Grant:
    """Make somebody the shard's owner."""
    return lambda nonce: Owner.granted(database, namespace, nonce)


async def test_versions_follow_each_other_and_a_takeover_goes_on(grant: Grant) -> None:
    first = await grant("first")
    assert await first.states.read(NAME, timeout=TIMEOUT) is None
    assert [await first.write(version) for version in range(3)] == [1, 2, 3]
    second = await grant("second")
    body = bytes(range(256))
    assert await second.write(3, body, commit_id="c4") == 4
    stored = await second.states.read(NAME, timeout=TIMEOUT)
    assert stored is not None
    assert (stored.version, stored.schema_version, stored.body) == (4, 3, body)
    assert (stored.fence, stored.nonce, stored.commit_id) == (second.fence, "second", "c4")
    assert abs(stored.updated_at - datetime.now(UTC)) < timedelta(minutes=1)


async def test_a_write_that_is_repeated_is_found_by_its_commit_id(grant: Grant) -> None:
    owner = await grant("n")
    for version in range(2):  # an INSERT, then an UPDATE
        assert await owner.write(version, b"once", commit_id=f"c{version}") == version + 1
        assert await owner.write(version, b"again", commit_id=f"c{version}") == version + 1
    stored = await owner.states.read(NAME, timeout=TIMEOUT)
    assert stored is not None
    assert (stored.version, stored.body) == (2, b"once")


@pytest.mark.parametrize("expected", [0, 1, 7])
async def test_another_version_than_expected_is_refused(grant: Grant, expected: int) -> None:
    owner = await grant("n")
    for version in range(2):
        await owner.write(version)
    with pytest.raises(PersistenceFailedError, match=f"expected version {expected}, found 2") as failed:
        await owner.write(expected)
    assert (failed.value.execution, failed.value.is_retryable) == (Execution.REFUSED, False)


@pytest.mark.parametrize("written", [0, 1])
async def test_whoever_is_not_the_present_owner_is_refused(grant: Grant, raw: Raw, written: int) -> None:
    """With a row and without one: an older fence, a higher one never granted, and another nonce."""
    old, present = await grant("old"), await grant("present")
    if written:
        await present.write(0, b"present")
    strangers = [
        old,
        Owner(old.states, "old", present.fence),
        Owner(old.states, "present", present.fence + 1),
        Owner(old.states, "present", present.fence - 1),
    ]
    for stranger in strangers:
        for expected in (0, 1):
            with pytest.raises(FencedError, match="g:0") as refused:
                await stranger.write(expected, b"stranger")
            assert (refused.value.fence, refused.value.store) == (stranger.fence, "database")
    assert await raw("SELECT version FROM rck_singleton_state") == [(1,)] * written
    assert await present.write(written) == written + 1


async def test_a_shard_that_was_never_granted_is_refused(database: Database, namespace: str) -> None:
    nobody = Owner(SqlState(database, namespace), "n", 1)
    with pytest.raises(FencedError, match="never granted"):
        await nobody.write(0)
    assert await nobody.states.read(NAME, timeout=TIMEOUT) is None


async def test_a_fence_of_another_namespace_or_shard_opens_nothing(
    grant: Grant, database: Database, namespace: str
) -> None:
    owner = await grant("n")
    await FenceRegister(database, namespace).grant("g", {1: 50}, "n", timeout=TIMEOUT)
    for stranger in (
        Owner(SqlState(database, f"{namespace}-2"), "n", owner.fence),
        Owner(owner.states, "n", 50),
    ):
        with pytest.raises(FencedError):
            await stranger.write(0)


# --- At the same moment as a grant ---


@pytest.mark.parametrize("written", [0, 1])
async def test_a_write_that_waited_for_a_grant_sees_it(
    grant: Grant, database: Database, hold: Any, waited_for: Any, written: int
) -> None:
    owner = await grant("old")
    if written:
        await owner.write(0)
    async with hold(database) as held:
        await held.execute("UPDATE rck_fences SET fence = fence + 1, nonce = 'new'")
        writing = asyncio.create_task(owner.write(written, b"late"))
        await waited_for(held)
        await held.commit()
        with pytest.raises(FencedError, match="of new"):
            await writing
    stored = await owner.states.read(NAME, timeout=TIMEOUT)
    assert (stored.version if stored else 0) == written


async def test_a_grant_waits_for_a_write_that_has_begun(
    postgres_database: Database, namespace: str, held_postgres: Any, waited_for: Any
) -> None:
    """The write holds the register's row to its commit; otherwise it could land after a newer grant."""
    owner = await Owner.granted(postgres_database, namespace, "old")
    await owner.write(0)
    await held_postgres.execute("SELECT 1 FROM rck_singleton_state FOR UPDATE")
    writing = asyncio.create_task(owner.write(1))
    await waited_for(held_postgres)
    with pytest.raises(PersistenceFailedError) as failed:
        await FenceRegister(postgres_database, namespace).grant("g", {0: 0}, "new", timeout=0.8)
    assert failed.value.execution is Execution.REFUSED
    await held_postgres.commit()
    assert await writing == 2
    await Owner.granted(postgres_database, namespace, "new")


async def test_writes_of_several_owners_do_not_wait_for_each_other(
    postgres_database: Database, namespace: str, held_postgres: Any
) -> None:
    """The guard is shared: another write under the same fence goes on."""
    owner = await Owner.granted(postgres_database, namespace, "n")
    await held_postgres.execute("SELECT 1 FROM rck_fences FOR SHARE")
    assert await owner.write(0, timeout=1) == 1


async def test_a_reason_that_could_not_be_read_leaves_the_write_unknown(
    grant: Grant, database: Database, monkeypatch: pytest.MonkeyPatch, raw: Raw
) -> None:
    """The write went through before, its repetition meets no row, and then the table is out of reach."""
    owner = await grant("n")
    await owner.write(0, commit_id="c")
    statement = database.statement

    async def statement_then_trouble(work: Any, *, timeout: float) -> Any:
        result = await statement(work, timeout=timeout)
        await raw("ALTER TABLE rck_fences RENAME TO rck_elsewhere")
        return result

    monkeypatch.setattr(database, "statement", statement_then_trouble)
    with pytest.raises(PersistenceFailedError, match="met no row") as failed:
        await owner.write(0, commit_id="c")
    assert failed.value.execution is Execution.UNKNOWN


def test_a_fenced_write_without_the_condition_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="held"):
        fenced("UPDATE t SET x = 1")
