"""`rck singletons`: who leads each singleton, what the system keeps of it, and its state where asked for."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import anyio
import click
import msgspec

from redis_cluster_kit.observe import read_members
from redis_cluster_kit.observe.singletons import (
    SingletonSight,
    look_at_singletons,
    served_singletons,
    stored_singletons,
)
from redis_cluster_kit.storage import RedisState, SingletonStore, SqlMetadata, SqlState

from . import output
from .commands import PROBLEM, Command, database_option, redis_options
from .stores import ClusterSide, make_database, open_cluster

HEADINGS = ("singleton", "verdict", "shard", "owner", "fence", "last run", "runs", "heartbeat", "last error")
_TIMEOUT = 5.0
_LONGEST = 60


@click.command(cls=Command, short_help="Show the singletons of a cluster.")
@redis_options
@database_option
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--state", "with_state", is_flag=True, help="Show their states as JSON too.")
@click.option(
    "--all", "everything", is_flag=True, help="Also those that no live runner serves; walks over all keys."
)
@click.option("--check", is_flag=True, help="Exit code 1 if one of them is not well.")
@click.pass_context
def singletons(
    context: click.Context,
    *,
    redis: str | None,
    namespace: str,
    as_json: bool,
    database: str | None,
    names: tuple[str, ...],
    with_state: bool,
    everything: bool,
    check: bool,
) -> None:
    """Show the singletons: who leads each and under which fence, when it ran last, its last error.

    It reads the copies in Redis, or the database where one is given. Verdicts: ok; failing: its last run
    raised; stale: no heartbeat for a minute; nobody leads it; nobody serves it. With NAMES only those.
    """
    found = anyio.run(_look, redis, namespace, database, names, everything)
    if as_json:
        output.show_json([_facts(sight, with_state=with_state) for sight in found])
    else:
        output.show_table(HEADINGS, [_row(sight) for sight in found])
        if with_state:
            for sight in found:
                click.echo(f"{sight.name}  {_as_json(sight.state)}")
    missing = set(names) - {sight.name for sight in found}
    for name in sorted(missing):
        click.echo(f"rck singletons: there is no singleton {name!r} (--all looks further)", err=True)
    if missing or (check and any(sight.verdict != "ok" for sight in found)):
        context.exit(PROBLEM)


async def _look(
    redis: str | None, namespace: str, database: str | None, names: tuple[str, ...], everything: bool
) -> list[SingletonSight]:
    async with open_cluster(redis, namespace) as side:
        cache = RedisState(side.lanes, side.keyspace, await side.clock(), "")
        if not database:
            store = SingletonStore(cache, None, None, None)
            return await _look_at(side, store, names, everything)
        async with make_database(database, side.settings) as opened:
            sql = SqlState(opened, namespace), SqlMetadata(opened, namespace)
            return await _look_at(side, SingletonStore(cache, *sql, None), names, everything)


async def _look_at(
    side: ClusterSide, store: SingletonStore, names: tuple[str, ...], everything: bool
) -> list[SingletonSight]:
    served = served_singletons(await read_members(side.lanes, side.keyspace), side.standing.shard_counts)
    places = dict(served)
    if everything:
        places = {
            **await stored_singletons(side.lanes, side.keyspace),
            **await store.places(timeout=_TIMEOUT),
            **served,
        }
    if names:
        places = {name: shard for name, shard in places.items() if name in names}
    return await look_at_singletons(
        side.lanes, side.keyspace, side.leases, store, places, served, timeout=_TIMEOUT
    )


def _facts(sight: SingletonSight, *, with_state: bool) -> dict[str, Any]:
    facts = {
        "singleton": sight.name,
        "verdict": sight.verdict,
        "shard": str(sight.shard),
        "owner": sight.owner,
        "fence": None if sight.installed is None else sight.installed.fence,
        "is_served": sight.is_served,
        "metadata": sight.metadata,
        "version": sight.saved.version,
        "schema": sight.saved.schema_version,
        "state_bytes": len(sight.saved.body),
        "state_age_ms": round(sight.saved.age.total_seconds() * 1000) if sight.saved.version else None,
    }
    return facts | {"state": sight.state} if with_state else facts


def _row(sight: SingletonSight) -> tuple[object, ...]:
    kept = sight.metadata
    return (
        sight.name,
        sight.verdict,
        sight.shard,
        sight.owner or "-",
        sight.installed.fence if sight.installed else "-",
        _ago(kept.last_run if kept else None, sight.now),
        kept.run_count if kept else 0,
        _ago(kept.heartbeat if kept else None, sight.now),
        _shortened(kept.last_error) if kept and kept.last_error else "-",
    )


def _ago(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "never"
    seconds = max(0.0, (now - moment).total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _shortened(text: str) -> str:
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
