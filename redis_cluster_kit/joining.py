"""What must hold before a runner may join: the record agrees, and no store forgets what it must keep.

Every refusal is a `JoinRefusedError` that names both values. Nothing here is done again later but the check
of the eviction policy.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from redis_cluster_kit.entity import CronDefinition
from redis_cluster_kit.errors import JoinRefusedError, PersistenceFailedError
from redis_cluster_kit.ownership import Member
from redis_cluster_kit.redis_access import Keyspace, Lanes, Script
from redis_cluster_kit.settings import RedisSettings, Settings
from redis_cluster_kit.storage import ClusterRecord, RecordStore

logger = logging.getLogger(__name__)

SETTLE = Script.load("record/settle")
LAYOUT_VERSION = 1


def wanted_record(settings: Settings, groups: Mapping[str, int]) -> ClusterRecord:
    """Return the record this runner's settings ask for; the database's uuid is found out later."""
    return ClusterRecord(
        database_uuid="",
        layout_version=LAYOUT_VERSION,
        partitions=settings.shards.partitions,
        shard_counts=dict(groups),
        lease_nodes=tuple(settings.lease.nodes),
    )


class RecordKeeper:
    """Brings the record's two copies, in the database and in Redis, and this runner's wishes together."""

    def __init__(self, lanes: Lanes, keyspace: Keyspace, store: RecordStore | None, timeout: float) -> None:
        self._lanes = lanes
        self._keyspace = keyspace
        self._store = store
        self._timeout = timeout

    async def settle(self, wanted: ClusterRecord) -> ClusterRecord:
        """Return the record that stands, with our groups in it."""
        seen = await self._seen()
        if self._store is None:
            return await self._settle_in_redis(wanted, seen)
        standing = await self._settle_in_database(self._store, wanted, _read(seen))
        await self.write(standing)
        return standing

    async def write(self, standing: ClusterRecord) -> None:
        """Make Redis' copy say what stands, it may have been wiped; groups that others have added stay."""
        seen = await self._seen()
        while True:
            found = _read(seen)
            ours = standing if found is None else standing.with_groups(found.shard_counts)
            if ours == found:
                return
            theirs = await self._replace(seen, ours)
            if theirs is None:
                return
            seen = theirs

    async def _seen(self) -> bytes:
        data: bytes | None = await self._lanes.call(
            self._keyspace.home_slot, "GET", self._keyspace.record, repeat=True
        )
        return data or b""

    async def _replace(self, seen: bytes, ours: ClusterRecord) -> bytes | None:
        """Write ours where `seen` stood; return what stands there instead, None if it is ours."""
        outcome = await SETTLE(
            self._lanes,
            self._keyspace.home_slot,
            record=self._keyspace.record,
            ours=ours.to_json(),
            seen=seen,
        )
        theirs: bytes | None = outcome.fields[0] if outcome.word == "stands" else None
        return theirs

    async def _settle_in_redis(self, wanted: ClusterRecord, seen: bytes) -> ClusterRecord:
        while True:
            found = _read(seen)
            if found is not None and found.database_uuid:
                raise JoinRefusedError(
                    setting="database",
                    expected=f"the cluster's database ({found.database_uuid})",
                    found="no database",
                    hint="give this runner the cluster's database, or another namespace",
                )
            if found is not None:
                _refuse_differences(wanted, found)
            ours = wanted if found is None else found.with_groups(wanted.shard_counts)
            theirs = await self._replace(seen, ours)
            if theirs is None:
                return ours
            seen = theirs

    async def _settle_in_database(
        self, store: RecordStore, wanted: ClusterRecord, cached: ClusterRecord | None
    ) -> ClusterRecord:
        standing = await store.read(timeout=self._timeout)
        if standing is None:
            if cached is not None:
                raise _other_database(cached, "a database without this cluster's record")
            first = msgspec.structs.replace(wanted, database_uuid=str(uuid.uuid4()))
            standing = await store.write_first(first, timeout=self._timeout)
        elif cached is not None and cached.database_uuid != standing.database_uuid:
            raise _other_database(cached, standing.database_uuid)
        _refuse_differences(msgspec.structs.replace(wanted, database_uuid=standing.database_uuid), standing)
        return await store.add_groups(wanted.shard_counts, timeout=self._timeout)


def _read(data: bytes) -> ClusterRecord | None:
    return ClusterRecord.from_json(data) if data else None


def _other_database(cached: ClusterRecord, found: str) -> JoinRefusedError:
    return JoinRefusedError(
        setting="database",
        expected=cached.database_uuid or "no database",
        found=found,
        hint="this Redis namespace belongs to another database",
    )


def _refuse_differences(ours: ClusterRecord, standing: ClusterRecord) -> None:
    for difference in ours.differences(standing):
        raise JoinRefusedError(setting=difference.setting, expected=difference.theirs, found=difference.ours)


async def check_eviction(lanes: Lanes, settings: RedisSettings) -> None:
    """Refuse, or warn of, a server that may evict keys: it would forget fences."""
    if settings.eviction_check == "ignore":
        return
    for policy in await _configured(lanes, "maxmemory-policy", settings):
        if policy == "noeviction":
            continue
        if settings.eviction_check == "warn":
            logger.warning("maxmemory-policy is %s: Redis may forget fences; set noeviction", policy)
            continue
        raise JoinRefusedError(
            setting="maxmemory-policy",
            expected="noeviction",
            found=policy,
            hint="CONFIG SET maxmemory-policy noeviction, or set RedisSettings.eviction_check",
        )


def check_crons(crons: Sequence[CronDefinition]) -> None:
    """Refuse crons without a database: their instants are kept there."""
    if crons:
        raise JoinRefusedError(
            setting=f"database (for cron {crons[0].name!r})",
            expected="a database, where the instants of crons are kept",
            found="no database",
            hint="pass database=…, or register no crons",
        )


async def check_weak_tier(lanes: Lanes, settings: RedisSettings) -> None:
    """Refuse to join without a database where Redis may lose what it has acknowledged."""
    if settings.assume_weak_fences:
        return
    needed = {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "always"}
    for setting, expected in needed.items():
        for found in await _configured(lanes, setting, settings):
            if found != expected:
                raise JoinRefusedError(
                    setting=f"{setting} (without a database)",
                    expected=expected,
                    found=found,
                    hint="pass database=…, configure Redis so, or set RedisSettings.assume_weak_fences",
                )


def check_one_host(me: Member, members: Mapping[str, Member]) -> None:
    """Refuse a second host on an SQLite file: its locks do not reach further than one."""
    for member in members.values():
        if member.boot_id and member.boot_id != me.boot_id:
            raise JoinRefusedError(
                setting="database",
                expected="a database server, for runners on several hosts",
                found=f"an SQLite file, and runner {member.runner_id} on host {member.host}",
                hint="use PostgreSQL",
            )


def boot_id() -> str:
    """Return what tells this host's present boot from every other host's; empty where it is not known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


async def _configured(lanes: Lanes, setting: str, settings: RedisSettings) -> list[str]:
    try:
        replies: list[Any] = await lanes.call_each_master("CONFIG", "GET", setting)
    except PersistenceFailedError as error:
        if error.is_retryable or settings.assume_noeviction:
            if error.is_retryable:
                raise
            return []
        raise JoinRefusedError(
            setting=setting,
            expected="to be readable (ACL +config|get)",
            found=error.detail,
            hint="allow CONFIG GET, or vouch for it with RedisSettings.assume_noeviction",
        ) from error
    return [reply[1].decode() for reply in replies if reply]
