"""`rck entity TYPE ID`: who owns an entity, its state, and what waits for it."""

from __future__ import annotations

from typing import Any

import anyio
import click
import msgspec

from redis_cluster_kit.identity import ShardId, check_entity_id, check_name, shard_number
from redis_cluster_kit.observe import read_members
from redis_cluster_kit.observe.entities import EntitySight, MessageSight, look_at_entity

from . import output
from .commands import CannotError, Command, redis_options
from .keys import group_of
from .stores import ClusterSide, open_cluster


@click.command(cls=Command)
@redis_options
@click.argument("type")
@click.argument("id")
@click.option("--group", metavar="NAME", help="Its shard group; needed only if no live runner serves it.")
@click.option("--payloads", is_flag=True, help="Show the arguments of its messages too.")
def entity(
    *,
    redis: str | None,
    namespace: str,
    as_json: bool,
    type: str,
    id: str,
    group: str | None,
    payloads: bool,
) -> None:
    """Show one entity: its shard, owner and fence, its state as JSON, and its mailbox.

    `in_progress` is the message a handler has claimed, with its attempt: the first is 1, each failure and
    each death of a runner adds one. Arguments of messages are shown only with --payloads.
    """
    found = anyio.run(_look, redis, namespace, type, id, group)
    messages = [_message(message, payloads=payloads) for message in found.messages]
    facts = _facts(found)
    if as_json:
        output.show_json({**facts, "messages": messages})
        return
    for name, value in facts.items():
        shown = msgspec.json.encode(value).decode() if name == "state" else value
        if name == "in_progress" and found.taken is not None:
            shown = f"{found.taken.rpc}, attempt {found.taken.attempt}, {found.taken.age_ms} ms old"
        click.echo(f"{name:13}{'-' if shown is None else shown}")
    if messages:
        output.show_table(tuple(messages[0]), [_cells(message) for message in messages])


async def _look(redis: str | None, namespace: str, type: str, id: str, group: str | None) -> EntitySight:
    async with open_cluster(redis, namespace) as side:
        return await _look_at(side, type, id, group)


async def _look_at(side: ClusterSide, type: str, id: str, group: str | None) -> EntitySight:
    try:
        check_name("type", type)
        check_entity_id(id)
    except ValueError as error:
        raise CannotError(str(error)) from error
    chosen = group or group_of(type, await read_members(side.lanes, side.keyspace), "--group")
    count = side.standing.shard_counts.get(chosen)
    if count is None:
        known = ", ".join(sorted(side.standing.shard_counts))
        raise CannotError(f"this cluster has no shard group {chosen!r}; it has {known}")
    shard = ShardId(chosen, shard_number(type, id, count))
    return await look_at_entity(side.lanes, side.keyspace, side.leases, shard, type, id)


def _facts(found: EntitySight) -> dict[str, Any]:
    return {
        "entity": f"{found.type}/{found.id}",
        "shard": str(found.shard),
        "owner": found.owner,
        "fence": None if found.installed is None else found.installed.fence,
        "waiting": found.waiting,
        "in_progress": None if found.taken is None else _message(found.taken, payloads=False),
        "version": found.version,
        "schema": found.schema,
        "state_bytes": found.state_size,
        "state": found.state,
    }


def _message(message: MessageSight, *, payloads: bool) -> dict[str, Any]:
    shown = {
        "id": message.id,
        "rpc": message.rpc,
        "phase": message.phase,
        "attempt": message.attempt,
        "age_ms": message.age_ms,
        "bytes": message.size,
    }
    return {**shown, "arguments": message.arguments} if payloads else shown


def _cells(message: dict[str, Any]) -> list[Any]:
    return [
        msgspec.json.encode(value).decode() if name == "arguments" else value
        for name, value in message.items()
    ]
