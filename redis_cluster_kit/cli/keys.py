"""`rck keys`: each kind of key with the redis-cli command that reads it; `--scan`: those that are there."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import anyio
import click

from redis_cluster_kit.identity import ShardId, check_entity_id, check_name, shard_number
from redis_cluster_kit.observe import read_members
from redis_cluster_kit.ownership import Member
from redis_cluster_kit.redis_access import KINDS, RedisUrl, kind_of

from . import output
from .commands import CannotError, Command, redis_options
from .stores import RedisSide, open_redis


@click.command(cls=Command)
@redis_options
@click.option("--shard", metavar="GROUP:NUMBER", help="The shard whose keys are shown; default: the first.")
@click.option("--entity", metavar="TYPE:ID", help="The entity whose keys are shown.")
@click.option("--scan", is_flag=True, help="List the keys that are there, with their kinds and TTLs.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=200, show_default=True, help="Most keys to list of a scan."
)
def keys(
    *,
    redis: str | None,
    namespace: str,
    as_json: bool,
    shard: str | None,
    entity: str | None,
    scan: bool,
    limit: int,
) -> None:
    """Show how to read a cluster's keys with redis-cli."""

    async def show() -> None:
        async with open_redis(redis, namespace) as side:
            if scan:
                await _show_scan(side, as_json, limit)
            else:
                members = await read_members(side.lanes, side.keyspace)
                _show_commands(side, as_json, _shown_place(side, members, shard, entity))

    anyio.run(show)


class Place(NamedTuple):
    """The shard whose keys are shown, and what else of a key's name is known."""

    shard: ShardId
    names: dict[str, str]


def _shown_place(
    side: RedisSide, members: Mapping[str, Member], shard: str | None, entity: str | None
) -> Place:
    names = {"runner": next(iter(members))} if members else {}
    counts = side.record.shard_counts if side.record else {}
    try:
        if entity is not None:
            kind, _, id = entity.partition(":")
            group = group_of(check_name("type", kind), members, "--shard")
            number = shard_number(kind, check_entity_id(id), counts[group])
            return Place(ShardId(group, number), {**names, "type": kind, "id": id})
        chosen = ShardId(min(counts, default="default"), 0) if shard is None else ShardId.parse(shard)
    except ValueError as error:
        raise CannotError(str(error)) from error
    return Place(chosen, names)


def group_of(kind: str, members: Mapping[str, Member], instead: str) -> str:
    """Return the shard group of a type, which only runners know."""
    for member in members.values():
        for group, types in member.serves.items():
            if kind in types:
                return group
    every = {one for member in members.values() for types in member.serves.values() for one in types}
    served = sorted(one for one in every if "/" not in one)
    raise CannotError(
        f"no live runner serves {kind!r}, so its shard group is not known; "
        f"served: {', '.join(served) or 'nothing'}; for others there is {instead}"
    )


def _show_commands(side: RedisSide, as_json: bool, place: Place) -> None:
    shard, names = place
    entries: list[dict[str, Any]] = []
    for kind in KINDS:
        key = side.keyspace.example(kind, shard, names)
        entries.append(
            {
                "kind": kind.name,
                "type": kind.type,
                "expires": kind.ttl,
                "holds": kind.purpose,
                "key": key,
                "command": kind.command(key),
            }
        )
    if as_json:
        output.show_json({"redis_cli": redis_cli(side.url), "shard": str(shard), "kinds": entries})
        return
    click.echo(f"shard s of a group is in partition s mod {side.keyspace.partitions}; shown: {shard}")
    click.echo(f"{redis_cli(side.url)}\n")
    for entry in entries:
        click.echo(f"{entry['command']}")
        click.echo(f"    {entry['kind']} ({entry['type']}, expires: {entry['expires']}): {entry['holds']}")


def redis_cli(url: RedisUrl) -> str:
    """Return how redis-cli gets to where the keys are; a login is for its user to add."""
    end = url.endpoints[0]
    if url.topology == "sentinel":
        return f"redis-cli -h {end.host} -p {end.port} sentinel get-master-addr-by-name {url.master}"
    words = ["redis-cli", *(["-s", end.path] if end.path else ["-h", end.host, "-p", str(end.port)])]
    words += ["-c"] if url.topology == "cluster" else []
    words += ["-n", str(url.database)] if url.database else []
    words += ["--tls"] if url.is_encrypted else []
    words += ["--user", "…"] if url.login.username else []
    words += ["--askpass"] if url.login.password else []
    return " ".join(words)


async def _show_scan(side: RedisSide, as_json: bool, limit: int) -> None:
    # A scan may name a key twice while a table grows.
    found = sorted({key async for key in side.lanes.scan(side.keyspace.pattern())})
    counts: dict[str, int] = {}
    for key in found:
        kind = kind_of(key)
        counts[kind.name if kind else "unknown"] = counts.get(kind.name if kind else "unknown", 0) + 1
    rows = [await _row(side, key) for key in itertools.islice(found, limit)]
    if as_json:
        listed = [{"key": key, "kind": kind, "ttl_ms": ttl} for key, kind, ttl in rows]
        output.show_json({"total": len(found), "kinds": counts, "keys": listed})
        return
    output.show_table(("key", "kind", "ttl"), [(key, kind, _shown(ttl)) for key, kind, ttl in rows])
    shown = f" (the first {limit} are shown; --limit shows more)" if len(found) > limit else ""
    parts = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    click.echo(f"{len(found)} keys{': ' if parts else ''}{parts}{shown}")


async def _row(side: RedisSide, key: bytes) -> tuple[str, str, int | None]:
    text = key.decode(errors="backslashreplace")
    kind = kind_of(key)
    left = await side.lanes.call(side.keyspace.slot_of(text), "PTTL", key, repeat=True)
    return text, kind.name if kind else "unknown", None if left < 0 else left


def _shown(ttl_ms: int | None) -> str:
    return "-" if ttl_ms is None else f"{ttl_ms / 1000:.1f} s"
