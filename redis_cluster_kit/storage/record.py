"""The cluster's record: what all runners must agree on, fixed at the first join.

The same JSON goes to Redis; after a wipe the database's copy wins. Refusing is the caller's part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection

from redis_cluster_kit.errors import Execution, JoinRefusedError, PersistenceFailedError

from .database import Database
from .deadline import Deadline
from .statements import Statement

_USER_INFO = re.compile(r"^([A-Za-z][\w+.-]*://)?[^?]*@")


class Difference(NamedTuple):
    """One setting on which two records disagree."""

    setting: str
    ours: object
    theirs: object


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is fixed at the first join. Fields are only ever added, with a default."""

    database_uuid: str
    layout_version: int
    partitions: int
    shard_counts: dict[str, int]
    lease_nodes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Stored in two places and shown in errors: what a URL carries beside the server's place stays out.
        places = tuple(_USER_INFO.sub(r"\1", node).partition("?")[0] for node in self.lease_nodes)
        msgspec.structs.force_setattr(self, "lease_nodes", places)

    def differences(self, other: ClusterRecord) -> list[Difference]:
        """Return what `other` says differently. A group that only one of them knows is no difference."""
        found = [
            Difference(setting, getattr(self, setting), getattr(other, setting))
            for setting in ("database_uuid", "layout_version", "partitions", "lease_nodes")
            if getattr(self, setting) != getattr(other, setting)
        ]
        for group in sorted(self.shard_counts.keys() & other.shard_counts.keys()):
            ours, theirs = self.shard_counts[group], other.shard_counts[group]
            if ours != theirs:
                found.append(Difference(f"shard_counts[{group}]", ours, theirs))
        return found

    def with_groups(self, counts: Mapping[str, int]) -> ClusterRecord:
        """Return this record with groups it did not have; a group it has keeps its count."""
        return msgspec.structs.replace(self, shard_counts={**counts, **self.shard_counts})

    def to_json(self) -> bytes:
        """Return the stored form: equal records give equal bytes."""
        return msgspec.json.encode(self, order="sorted")

    @classmethod
    def from_json(cls, data: bytes | str) -> ClusterRecord:
        """Read `to_json()` back; `PersistenceFailedError` if it is not a record."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise PersistenceFailedError(
                store="cluster record",
                execution=Execution.REFUSED,
                is_retryable=False,
                detail=f"the stored record cannot be read: {error}",
                cause=error,
            ) from error


_INSERT = Statement("""
INSERT INTO rck_record (namespace, revision, record) VALUES (:namespace, 1, :record)
ON CONFLICT (namespace) DO NOTHING
""")

_READ = Statement("SELECT revision, record FROM rck_record WHERE namespace = :namespace")

_REPLACE = Statement("""
UPDATE rck_record SET revision = revision + 1, record = :record
WHERE namespace = :namespace AND revision = :expected_revision
RETURNING revision
""")


class RecordStore:
    """The record of one namespace in the database."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    async def read(self, *, timeout: float) -> ClusterRecord | None:
        """Return the record that stands, None before the first join."""
        found = await self._read(timeout)
        return None if found is None else found[1]

    async def write_first(self, record: ClusterRecord, *, timeout: float) -> ClusterRecord:
        """Store `record` unless there is one, and return the one that stands: of many joining, one wins."""
        insert = _INSERT.on(self._database.dialect)
        parameters = {"namespace": self._namespace, "record": record.to_json().decode()}

        def work(connection: Connection) -> None:
            connection.execute(insert, parameters)

        deadline = Deadline(timeout)
        standing = await self.read(timeout=deadline.left)
        if standing is None:
            await self._database.statement(work, timeout=deadline.left)
            standing = await self.read(timeout=deadline.left)
        return self._required(standing)

    async def add_groups(self, counts: Mapping[str, int], *, timeout: float) -> ClusterRecord:
        """Add the groups the record does not have; `JoinRefusedError` if it has one with another count."""
        deadline = Deadline(timeout)
        while True:
            found = await self._read(deadline.left)
            revision, standing = (0, None) if found is None else found
            record = self._required(standing)
            _refuse_other_counts(record, counts)
            grown = record.with_groups(counts)
            if grown == record or await self._replace(revision, grown, deadline.left):
                return grown

    async def _read(self, timeout: float) -> tuple[int, ClusterRecord] | None:
        read = _READ.on(self._database.dialect)

        def work(connection: Connection) -> tuple[int, str] | None:
            row = connection.execute(read, {"namespace": self._namespace}).one_or_none()
            return None if row is None else (row.revision, row.record)

        found = await self._database.read(work, timeout=timeout)
        return None if found is None else (found[0], ClusterRecord.from_json(found[1]))

    async def _replace(self, revision: int, record: ClusterRecord, timeout: float) -> bool:
        replace = _REPLACE.on(self._database.dialect)
        parameters = {
            "namespace": self._namespace,
            "expected_revision": revision,
            "record": record.to_json().decode(),
        }

        def work(connection: Connection) -> bool:
            return connection.execute(replace, parameters).scalar() is not None

        return await self._database.statement(work, timeout=timeout)

    def _required(self, record: ClusterRecord | None) -> ClusterRecord:
        if record is None:
            raise PersistenceFailedError(
                store="database",
                execution=Execution.REFUSED,
                is_retryable=False,
                detail=f"namespace {self._namespace!r} has no cluster record; has somebody deleted it?",
            )
        return record


def _refuse_other_counts(record: ClusterRecord, counts: Mapping[str, int]) -> None:
    for group, count in counts.items():
        standing = record.shard_counts.get(group, count)
        if standing != count:
            raise JoinRefusedError(setting=f"shard_counts[{group}]", expected=standing, found=count)
