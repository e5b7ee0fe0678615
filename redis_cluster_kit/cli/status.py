"""`rck status`: who is in the cluster and what they own, once or again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import anyio
import click

from redis_cluster_kit.errors import PersistenceFailedError
from redis_cluster_kit.observe import Snapshot
from redis_cluster_kit.ownership import Member, incomparable_types

from . import output
from .commands import Command, explain, redis_options
from .stores import ClusterSide, open_cluster

HEADINGS = ("runner", "host", "pid", "state", "shards", "weight", "serves")


@click.command(cls=Command, short_help="Show the runners of a cluster.")
@redis_options
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option(
    "--every", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="Seconds between looks."
)
def status(*, redis: str | None, namespace: str, as_json: bool, watch: bool, every: float) -> None:
    """Show the runners of a cluster, and how its shards are spread over them."""
    anyio.run(_watch if watch else _once, redis, namespace, as_json, every)


async def _once(redis: str | None, namespace: str, as_json: bool, _every: float) -> None:
    async with open_cluster(redis, namespace) as side:
        _show(side, await side.look(), as_json)


async def _watch(redis: str | None, namespace: str, as_json: bool, every: float) -> None:
    async with open_cluster(redis, namespace) as side:
        snapshot = await side.look()
        if output.is_terminal() and not as_json:
            await _watch_live(side, snapshot, every)
        while True:
            _show(side, snapshot, as_json)
            if not as_json:
                click.echo("")
            snapshot = await _next_look(side, every)


async def _watch_live(side: ClusterSide, snapshot: Snapshot, every: float) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    trouble: list[str] = []
    with Live(auto_refresh=False) as live:
        while True:
            table = output.rich_table(HEADINGS, rows(snapshot))
            picture = Group(Text(headline(side, snapshot)), table, *map(Text, remarks(snapshot) + trouble))
            live.update(picture, refresh=True)
            await anyio.sleep(every)
            try:
                snapshot, trouble = await side.look(), []
            except PersistenceFailedError as error:
                trouble = [f"this was seen last; {explain(error)}"]


async def _next_look(side: ClusterSide, every: float) -> Snapshot:
    """A store that is away for a while does not end the watching."""
    while True:
        await anyio.sleep(every)
        try:
            return await side.look()
        except PersistenceFailedError as error:
            click.echo(explain(error), err=True)


def _show(side: ClusterSide, snapshot: Snapshot, as_json: bool) -> None:
    if as_json:
        output.show_json(as_data(side.keyspace.namespace, snapshot))
        return
    click.echo(headline(side, snapshot))
    output.show_table(HEADINGS, rows(snapshot))
    for remark in remarks(snapshot):
        click.echo(remark)


def headline(side: ClusterSide, snapshot: Snapshot) -> str:
    """Return the cluster in a line."""
    runners, shards = len(snapshot.members), len(snapshot.shards)
    return (
        f"namespace {side.keyspace.namespace} · {runners} runner{'' if runners == 1 else 's'} · "
        f"{shards - len(snapshot.free)} of {shards} shards owned · {side.url}"
    )


def rows(snapshot: Snapshot) -> list[Sequence[object]]:
    """Return a row for each runner, also for those whose leases outlive them."""
    gone = {sight.owner for sight in snapshot.shards if sight.owner} - snapshot.members.keys()
    found: list[Sequence[object]] = [
        (
            name,
            member.host,
            member.pid,
            _state(member),
            snapshot.owned_by(name),
            member.weight,
            _serves(member),
        )
        for name, member in snapshot.members.items()
    ]
    return [*found, *((name, "?", 0, "gone", snapshot.owned_by(name), 0.0, "") for name in sorted(gone))]


def remarks(snapshot: Snapshot) -> list[str]:
    """Return what is unusual, a line each."""
    found = Counter(sight.remark for sight in snapshot.shards if sight.remark)
    lines = [f"{count} shards: {remark}" for remark, count in sorted(found.items())]
    return lines + [
        f"group {group}: its runners serve types that do not contain one another"
        for group in incomparable_types(snapshot.members)
    ]


def as_data(namespace: str, snapshot: Snapshot) -> dict[str, Any]:
    """Return what `--json` prints."""
    groups: dict[str, dict[str, int]] = {
        group: {"shards": count, "free": 0} for group, count in snapshot.record.shard_counts.items()
    }
    for sight in snapshot.free:
        groups[sight.shard.group]["free"] += 1
    return {
        "namespace": namespace,
        "record": snapshot.record,
        "runners": [
            {"state": _state(member), "shards": snapshot.owned_by(name), "member": member}
            for name, member in snapshot.members.items()
        ],
        "groups": groups,
        "remarks": remarks(snapshot),
    }


def _state(member: Member) -> str:
    if member.draining:
        return "draining"
    return "serving" if member.hosting else "sending only"


def _serves(member: Member) -> str:
    """The types alone: what else a runner can do with them (`type/rpc`) is in the JSON."""
    types = {
        group: ", ".join(name for name in names if "/" not in name)
        for group, names in sorted(member.serves.items())
    }
    return "; ".join(f"{group}: {names or '-'}" for group, names in types.items())
