"""Machine ids for snowflakes, leased by the database's clock, with the timestamps each holder may use.

What keeps two ids apart is not the lease but the reservation: a holder issues only timestamps in
(floor, ceiling], a range that was written down before its first use and that no other holder ever gets.
So neither a clock set back nor a lease that ran out can repeat an id. Making ids is not done here.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from sqlalchemy import Connection, TextClause

from redis_cluster_kit.errors import Execution, FencedError, PersistenceFailedError

from .database import Database
from .deadline import Deadline
from .statements import Statement

MACHINE_IDS = 1024

# A holder renews well before its lease ends; the slack lets it issue while that renewal is on its way.
SLACK = timedelta(seconds=1)

_MS = timedelta(milliseconds=1)

_LOOK = Statement("""
SELECT machine_id, reserved_ms, leased_until < {clock_ms} AS is_free
FROM rck_machine_ids WHERE namespace = :namespace
""")

# Whoever took the row meanwhile has made `leased_until` a later time: this then meets no row.
_TAKE = Statement("""
INSERT INTO rck_machine_ids (namespace, machine_id, nonce, leased_until, reserved_ms)
VALUES (:namespace, :machine_id, :nonce, {clock_ms} + :lease_ms, :now_ms + :span_ms)
ON CONFLICT (namespace, machine_id) DO UPDATE
SET nonce = excluded.nonce, leased_until = excluded.leased_until,
    reserved_ms = {greatest}(rck_machine_ids.reserved_ms, :now_ms) + :span_ms
WHERE rck_machine_ids.leased_until < {clock_ms} AND rck_machine_ids.reserved_ms = :reserved_ms
RETURNING reserved_ms
""")

_RENEW = Statement("""
UPDATE rck_machine_ids
SET leased_until = {clock_ms} + :lease_ms, reserved_ms = {greatest}(reserved_ms, :now_ms + :span_ms)
WHERE namespace = :namespace AND machine_id = :machine_id AND nonce = :nonce
RETURNING reserved_ms
""")

_RELEASE = Statement("""
UPDATE rck_machine_ids SET leased_until = 0, nonce = ''
WHERE namespace = :namespace AND machine_id = :machine_id AND nonce = :nonce
""")

_NEVER_USED = -1


@dataclass(frozen=True, slots=True)
class MachineIdLease:
    """A machine id and the timestamps its holder may issue: above `floor_ms`, up to `ceiling_ms`."""

    machine_id: int
    floor_ms: int
    ceiling_ms: int
    nonce: str
    duration: timedelta


class _Candidate(NamedTuple):
    machine_id: int
    reserved_ms: int


class MachineIds:
    """The machine ids of one namespace."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    async def claim(self, nonce: str, now_ms: int, lease: timedelta, *, timeout: float) -> MachineIdLease:
        """Take a free id, if possible one whose reserved timestamps all lie before `now_ms`: no wait then."""
        deadline = Deadline(timeout)
        take = _TAKE.on(self._database.dialect)
        parameters = {"namespace": self._namespace, "nonce": nonce} | _spans(now_ms, lease)
        # One statement a try, no transaction: a claim that lost a row to another one must not keep it locked.
        for machine_id, mark in _preferred(*await self._candidates(timeout), now_ms):
            attempt = parameters | {"machine_id": machine_id, "reserved_ms": mark}
            ceiling = await self._write(take, attempt, deadline.left)
            if ceiling is not None:
                return MachineIdLease(machine_id, mark, ceiling, nonce, lease)
        raise PersistenceFailedError(
            store="database",
            execution=Execution.REFUSED,
            detail=f"all {MACHINE_IDS} machine ids of namespace {self._namespace!r} are leased; "
            "one becomes free when its holder leaves or its lease ends",
        )

    async def renew(self, lease: MachineIdLease, now_ms: int, *, timeout: float) -> int:
        """Return the new ceiling; `FencedError` if the id has another holder by now."""
        parameters = self._held(lease) | _spans(now_ms, lease.duration)
        ceiling = await self._write(_RENEW.on(self._database.dialect), parameters, timeout)
        if ceiling is None:
            raise FencedError(
                shard=f"machine id {lease.machine_id}",
                store="database",
                detail="its lease ended and it was taken or released; claim another one",
            )
        return ceiling

    async def release(self, lease: MachineIdLease, *, timeout: float) -> None:
        """Give the id back, if it is still ours; what was reserved stays reserved."""
        statement = _RELEASE.on(self._database.dialect)

        def work(connection: Connection) -> None:
            connection.execute(statement, self._held(lease))

        await self._database.statement(work, timeout=timeout)

    async def _candidates(self, timeout: float) -> tuple[list[_Candidate], list[_Candidate]]:
        """Return the ids that were used and are free now, and those that never were used."""
        look = _LOOK.on(self._database.dialect)

        def work(connection: Connection) -> tuple[list[_Candidate], list[_Candidate]]:
            rows = connection.execute(look, {"namespace": self._namespace}).all()
            used = {row.machine_id for row in rows}
            free = [_Candidate(row.machine_id, row.reserved_ms) for row in rows if row.is_free]
            return free, [
                _Candidate(number, _NEVER_USED) for number in range(MACHINE_IDS) if number not in used
            ]

        return await self._database.read(work, timeout=timeout)

    def _held(self, lease: MachineIdLease) -> dict[str, object]:
        return {"namespace": self._namespace, "machine_id": lease.machine_id, "nonce": lease.nonce}

    async def _write(
        self, statement: TextClause, parameters: dict[str, object], timeout: float
    ) -> int | None:
        def work(connection: Connection) -> int | None:
            return connection.execute(statement, parameters).scalar()

        return await self._database.statement(work, timeout=timeout)


def _spans(now_ms: int, lease: timedelta) -> dict[str, object]:
    return {"now_ms": now_ms, "lease_ms": lease // _MS, "span_ms": (lease + SLACK) // _MS}


def _preferred(free: list[_Candidate], unused: list[_Candidate], now_ms: int) -> list[_Candidate]:
    """Used ids whose marks have passed, then new ones, then those that need a wait, the shortest first.

    Shuffled where the order does not matter: runners that start together then seldom try the same one.
    """
    passed = [candidate for candidate in free if candidate.reserved_ms < now_ms]
    waiting = [candidate for candidate in free if candidate.reserved_ms >= now_ms]
    return [
        *random.sample(passed, len(passed)),
        *random.sample(unused, len(unused)),
        *sorted(waiting, key=lambda candidate: candidate.reserved_ms),
    ]
