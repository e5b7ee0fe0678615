"""Judges the cluster itself: its record in both stores, fences, lease nodes, members and shards."""

from __future__ import annotations

import anyio

from redis_cluster_kit.cli.stores import ClusterSide
from redis_cluster_kit.errors import ClusterError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.joining import LAYOUT_VERSION
from redis_cluster_kit.observe import Snapshot
from redis_cluster_kit.ownership import incomparable_types
from redis_cluster_kit.storage import ClusterRecord, Database, FenceRegister, RecordStore

from .finding import Finding, ok, problem, warning

_TIMEOUT = 5.0


async def check_record(cached: ClusterRecord | None, database: Database, namespace: str) -> Finding:
    """Return whether Redis and the database tell the same of the cluster."""
    check, where = "record", f"namespace {namespace}"
    standing = await RecordStore(database, namespace).read(timeout=_TIMEOUT)
    if standing is None or cached is None:
        if standing is None and cached is None:
            return ok(check, where, "none yet: nobody has joined")
        missing = "the database" if standing is None else "Redis"
        advice = (
            "this Redis belongs to another database: correct RCK_DATABASE or RCK_REDIS"
            if standing is None
            else "Redis was wiped, or is another one: the next runner that joins writes it again"
        )
        return (problem if standing is None else warning)(check, where, f"missing in {missing}", advice)
    if differences := cached.differences(standing):
        said = "; ".join(
            f"{item.setting}: Redis {item.ours!r}, database {item.theirs!r}" for item in differences
        )
        advice = "the database's copy wins; runners that differ are refused: see which store is the wrong one"
        return problem(check, where, said, advice)
    return judge_layout(standing, where)


def judge_layout(record: ClusterRecord, where: str) -> Finding:
    """Return whether this release knows the keys' layout."""
    groups = ", ".join(f"{group} {count}" for group, count in sorted(record.shard_counts.items()))
    if record.layout_version != LAYOUT_VERSION:
        found = f"layout {record.layout_version}, this release knows {LAYOUT_VERSION}"
        return problem("record", where, found, "use the release that made the cluster, or a new namespace")
    return ok("record", where, f"both agree: {record.partitions} partitions, shards: {groups}")


async def check_fences(snapshot: Snapshot, database: Database, namespace: str) -> Finding:
    """Return whether the database knows of every fence that is installed in Redis."""
    register = FenceRegister(database, namespace)
    behind: list[ShardId] = []
    for group, count in sorted(snapshot.record.shard_counts.items()):
        granted = await register.read(group, range(count), timeout=_TIMEOUT)
        for sight in snapshot.shards:
            if sight.shard.group == group and sight.installed is not None:
                known = granted.get(sight.shard.number, (0, ""))[0]
                behind += [sight.shard] if sight.installed.fence > known else []
    if behind:
        found = f"{len(behind)} shards have a newer fence in Redis than in the database, like {behind[0]}"
        advice = (
            "the database forgot grants (an old dump?): owners step over it by themselves, look for the cause"
        )
        return problem("fences", f"namespace {namespace}", found, advice)
    return ok("fences", f"namespace {namespace}", "the database knows every installed fence")


async def check_lease_nodes(side: ClusterSide) -> list[Finding]:
    """Return whether each lease node answers, and whether a majority does."""
    if not side.standing.lease_nodes:
        return [ok("lease nodes", str(side.url), "the data Redis holds the leases")]
    down: dict[str, str] = {}
    for place, lanes in side.nodes.items():
        try:
            await lanes.call(side.keyspace.home_slot, "PING", repeat=True)
        except ClusterError as error:
            down[place] = error.detail or str(error)
    findings = [
        warning("lease nodes", place, text, "start it, or see whether RCK_LEASE_NODES has its password")
        for place, text in down.items()
    ]
    up = len(side.nodes) - len(down)
    found = f"{up} of {len(side.nodes)} answer"
    if up <= len(side.nodes) // 2:
        return [*findings, problem("lease nodes", "majority", found, "no lease is granted or renewed so")]
    return [*findings, ok("lease nodes", "majority", found)]


async def check_shards(side: ClusterSide) -> list[Finding]:
    """Return whether the members are of one mind, and whether every shard has an owner."""
    snapshot = await side.look()
    where = f"namespace {side.keyspace.namespace}"
    findings = [
        warning(
            "types",
            f"group {group}",
            "runners serve types that do not contain one another",
            "give each set of types its shard_group",
        )
        for group in incomparable_types(snapshot.members)
    ]
    free = {sight.shard for sight in snapshot.free}
    if free and _hosted_groups(snapshot):
        # A shard that changes hands is free for a moment: only one that stays so is stuck.
        await anyio.sleep(side.settings.lease.ttl.total_seconds() / 2)
        snapshot = await side.look()
        free &= {sight.shard for sight in snapshot.free}
    return [*findings, judge_shards(snapshot, free, where)]


def judge_shards(snapshot: Snapshot, free: set[ShardId], where: str) -> Finding:
    """Return whether a shard that stays free should have an owner: one whose group somebody serves."""
    hosted = _hosted_groups(snapshot)
    if not hosted:
        return ok("shards", where, "no runner is there to own shards")
    if stuck := sorted(shard for shard in free if shard.group in hosted):
        found = f"{len(stuck)} of {len(snapshot.shards)} have no owner, like {stuck[0]}"
        return problem(
            "shards", where, found, "see the health of the runners: they cannot get leases or fences"
        )
    if unserved := sorted({shard.group for shard in free}):
        advice = "start a runner that serves it, or leave it: what is in its mailboxes waits"
        return warning("shards", where, f"no runner serves group {', '.join(unserved)}", advice)
    return ok("shards", where, f"{len(snapshot.shards)} of groups {', '.join(sorted(hosted))} are owned")


def _hosted_groups(snapshot: Snapshot) -> set[str]:
    return {
        group
        for member in snapshot.members.values()
        if member.hosting and not member.draining
        for group in member.serves
    }
