"""`rck deadletters`: what nobody tries again by itself; listed, looked at, replayed and dropped by hand."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import anyio
import click
import msgspec

from redis_cluster_kit.codec import decode
from redis_cluster_kit.delivery import DeadLetter, DeadLetters
from redis_cluster_kit.errors import KitError

from . import output
from .commands import PROBLEM, CannotError, Command, confirm, redis_options
from .stores import open_redis

T = TypeVar("T")


@click.group()
def deadletters() -> None:
    """Dead letters: messages whose handlers failed too often, or that cannot be handled at all."""


@deadletters.command("list", cls=Command)
@redis_options
@click.option("--type", metavar="NAME", help="Only those to entities of this type.")
def list_them(*, redis: str | None, namespace: str, as_json: bool, type: str | None) -> None:
    """List dead letters, oldest first."""
    found = _with(redis, namespace, lambda letters: letters.list(type=type))
    if as_json:
        output.show_json([_facts(letter) for letter in found])
        return
    rows = [
        (letter.message_id, letter.rpc or "?", letter.failures, letter.deaths, letter.error or letter.reason)
        for letter in found
    ]
    output.show_table(("message", "rpc", "failures", "deaths", "error"), rows)


@deadletters.command("show", cls=Command)
@redis_options
@click.argument("message_id")
@click.option("--payload", is_flag=True, help="Show the message's arguments too.")
def show(*, redis: str | None, namespace: str, as_json: bool, message_id: str, payload: bool) -> None:
    """Show one dead letter with its traceback."""
    for letter in _with(redis, namespace, lambda letters: letters.list()):
        if letter.message_id == message_id:
            facts = _facts(letter) | {"traceback": letter.traceback}
            if payload:
                facts["arguments"] = _readable(letter.payload)
            _tell(facts, as_json=as_json)
            return
    raise CannotError(f"there is no dead letter {message_id!r}")


@deadletters.command("replay", cls=Command)
@redis_options
@click.argument("message_id")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def replay(
    context: click.Context, *, redis: str | None, namespace: str, as_json: bool, message_id: str, yes: bool
) -> None:
    """Put a dead letter back into its mailbox, with no failures counted."""
    confirm(f"Replay {message_id}?", yes=yes, is_terminal=sys.stdin.isatty())
    done = _with(redis, namespace, lambda letters: letters.replay(message_id))
    _told(context, "replayed", message_id, done=done, as_json=as_json)


@deadletters.command("drop", cls=Command)
@redis_options
@click.argument("message_id")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def drop(
    context: click.Context, *, redis: str | None, namespace: str, as_json: bool, message_id: str, yes: bool
) -> None:
    """Forget a dead letter for good."""
    confirm(f"Drop {message_id} for good?", yes=yes, is_terminal=sys.stdin.isatty())
    done = _with(redis, namespace, lambda letters: letters.drop(message_id))
    _told(context, "dropped", message_id, done=done, as_json=as_json)


def _with(redis: str | None, namespace: str, ask: Callable[[DeadLetters], Awaitable[T]]) -> T:
    async def run() -> T:
        async with open_redis(redis, namespace) as side:
            counts = dict(side.standing.shard_counts)
            letters = DeadLetters(side.lanes, side.keyspace, counts, side.settings.mailbox.bytes_limit)
            try:
                return await ask(letters)
            except ValueError as error:
                raise CannotError(str(error)) from error

    return anyio.run(run)


def _facts(letter: DeadLetter) -> dict[str, Any]:
    return {
        "message_id": letter.message_id,
        "type": letter.type,
        "entity_id": letter.entity_id,
        "rpc": letter.rpc,
        "reason": letter.reason,
        "error": letter.error,
        "failures": letter.failures,
        "deaths": letter.deaths,
        "buried_at": letter.buried_at.isoformat(),
        "runner_id": letter.runner_id,
        "payload_bytes": len(letter.payload),
    }


def _readable(payload: bytes) -> Any:
    try:
        return decode(payload, Any, max_depth=500)
    except KitError:
        return payload.hex()


def _tell(facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.show_json(facts)
        return
    lines: Sequence[str] = [
        f"{name:15}{msgspec.json.encode(value).decode() if name == 'arguments' else value}"
        for name, value in facts.items()
    ]
    click.echo("\n".join(lines))


def _told(context: click.Context, did: str, message_id: str, *, done: bool, as_json: bool) -> None:
    if as_json:
        output.show_json({"message_id": message_id, did: done})
    else:
        click.echo(f"{did} {message_id}" if done else f"there is no dead letter {message_id}")
    if not done:
        context.exit(PROBLEM)
