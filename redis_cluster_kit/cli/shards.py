"""`rck shards`: each shard with its owner and its installed fence."""

from __future__ import annotations

import anyio
import click

from redis_cluster_kit.observe import ShardSight

from . import output
from .commands import Command, redis_options
from .stores import open_cluster


@click.command(cls=Command)
@redis_options
@click.option("--group", metavar="NAME", help="Only this shard group.")
@click.option("--owner", metavar="TEXT", help="Only shards of runners whose id begins so.")
@click.option("--unusual", is_flag=True, help="Only shards with a remark: free, without a fence, taken over.")
def shards(
    *, redis: str | None, namespace: str, as_json: bool, group: str | None, owner: str | None, unusual: bool
) -> None:
    """List the shards: who owns each, and under which fence."""
    found = [
        sight
        for sight in anyio.run(_look, redis, namespace)
        if (group is None or sight.shard.group == group)
        and (owner is None or (sight.owner or "").startswith(owner))
        and (sight.remark or not unusual)
    ]
    if as_json:
        output.show_json(
            [
                {
                    "shard": str(sight.shard),
                    "owner": sight.owner,
                    "fence": None if sight.installed is None else sight.installed.fence,
                    "wants": {} if sight.installed is None else sight.installed.wants,
                    "remark": sight.remark,
                }
                for sight in found
            ]
        )
    else:
        rows = [
            (sight.shard, sight.owner or "-", sight.installed.fence if sight.installed else "-", sight.remark)
            for sight in found
        ]
        output.show_table(("shard", "owner", "fence", "remark"), rows)


async def _look(redis: str | None, namespace: str) -> list[ShardSight]:
    async with open_cluster(redis, namespace) as side:
        return (await side.look()).shards
