"""What placement says for this runner now: members and wants go in, the owner of every shard comes out.

The shard of a singleton or cron that some live member serves wants it, so only those lead or plan it who know
it.

Pure but for the members' own words; who really holds a shard is the leases' to say.
"""

from __future__ import annotations

from collections.abc import Mapping

from redis_cluster_kit.identity import ShardId, shard_number

from .assignment import Candidate, assign
from .fences import Installed
from .membership import Member

SINGLETON = "singleton/"
"""What a member's word for a singleton it serves begins with."""
CRON = "cron."
"""What the type of a cron's ticks begins with, which a member that serves the cron has among its words."""
WANT_FOR_MS = 600_000
"""A type is wanted for 10 minutes after a shard last needed it."""


def plan_shards(
    groups: Mapping[str, int],
    members: Mapping[str, Member],
    installed: Mapping[ShardId, Installed | None],
    now_ms: int,
) -> dict[ShardId, str]:
    """Return who should own each shard of `groups`; shards that nobody may serve are missing."""
    plan: dict[ShardId, str] = {}
    for group, count in groups.items():
        runners = candidates(group, members)
        wants = _wants(group, installed, now_ms)
        for number, names in _led(count, runners).items():
            wants[number] = wants.get(number, frozenset()) | names
        for number, runner_id in assign(group, count, runners, wants).items():
            plan[ShardId(group, number)] = runner_id
    return plan


def candidates(group: str, members: Mapping[str, Member]) -> list[Candidate]:
    """Return the members that may own shards of `group`."""
    return [
        Candidate(member.runner_id, member.weight, frozenset(member.serves[group]))
        for member in members.values()
        if member.hosting and not member.draining and group in member.serves
    ]


def incomparable_types(members: Mapping[str, Member]) -> list[str]:
    """Return the groups in which two members serve sets of types that do not contain one another."""
    groups = {group for member in members.values() for group in member.serves}
    found: list[str] = []
    for group in sorted(groups):
        served = {runner.serves for runner in candidates(group, members)}
        if any(not (one <= other or other <= one) for one in served for other in served):
            found.append(group)
    return found


def _led(count: int, runners: list[Candidate]) -> dict[int, frozenset[str]]:
    """Return the singletons and crons each shard has, as far as anybody serves them."""
    wants: dict[int, frozenset[str]] = {}
    for name in {name for runner in runners for name in runner.serves}:
        if name.startswith(SINGLETON):
            number = shard_number("singleton", name.removeprefix(SINGLETON), count)
        elif name.startswith(CRON) and "/" not in name:
            number = shard_number("cron", name.removeprefix(CRON), count)
        else:
            continue
        wants[number] = wants.get(number, frozenset()) | {name}
    return wants


def _wants(
    group: str, installed: Mapping[ShardId, Installed | None], now_ms: int
) -> dict[int, frozenset[str]]:
    wants: dict[int, frozenset[str]] = {}
    for shard, found in installed.items():
        if found is None or shard.group != group:
            continue
        fresh = frozenset(name for name, when in found.wants.items() if when > now_ms - WANT_FOR_MS)
        if fresh:
            wants[shard.number] = fresh
    return wants
