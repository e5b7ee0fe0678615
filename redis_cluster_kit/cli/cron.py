"""`rck cron`: crons as the database has them; paused, resumed and triggered by hand."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

import anyio
import click
import msgspec

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.delivery import Mailboxes
from redis_cluster_kit.runtime import CronInfo, Crons, TickMessages
from redis_cluster_kit.storage import SqlCronView

from . import output
from .commands import CannotError, Command, confirm, database_option, redis_options
from .stores import RedisSide, make_database, open_redis

T = TypeVar("T")


@click.group()
def cron() -> None:
    """Crons: when they come next, how their ticks went; pause, resume and trigger them."""


@cron.command("list", cls=Command)
@redis_options
@database_option
def list_them(*, redis: str | None, database: str | None, namespace: str, as_json: bool) -> None:
    """List the crons with their next three instants, in UTC."""
    found = _with(redis, database, namespace, lambda crons: crons.list())
    if as_json:
        output.show_json([msgspec.to_builtins(one) for one in found])
        return
    headings = (
        "cron",
        "expression",
        "zone",
        "state",
        "pending",
        "runs",
        "failures",
        "last run",
        "next",
        "error",
    )
    output.show_table(headings, [_cells(one) for one in found])


@cron.command("pause", cls=Command)
@redis_options
@database_option
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def pause(
    *, redis: str | None, database: str | None, namespace: str, as_json: bool, name: str, yes: bool
) -> None:
    """Let a cron's instants pass until it is resumed."""
    confirm(f"Pause {name}?", yes=yes, is_terminal=sys.stdin.isatty())
    _with(redis, database, namespace, lambda crons: crons.pause(name))
    _told(name, "paused", True, as_json=as_json)


@cron.command("resume", cls=Command)
@redis_options
@database_option
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def resume(
    *, redis: str | None, database: str | None, namespace: str, as_json: bool, name: str, yes: bool
) -> None:
    """Plan a paused cron again, from now on."""
    confirm(f"Resume {name}?", yes=yes, is_terminal=sys.stdin.isatty())
    _with(redis, database, namespace, lambda crons: crons.resume(name))
    _told(name, "resumed", True, as_json=as_json)


@cron.command("trigger", cls=Command)
@redis_options
@database_option
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def trigger(
    *, redis: str | None, database: str | None, namespace: str, as_json: bool, name: str, yes: bool
) -> None:
    """Run a cron now, whatever its schedule."""
    confirm(f"Run {name} now?", yes=yes, is_terminal=sys.stdin.isatty())
    instant = _with(redis, database, namespace, lambda crons: crons.trigger(name))
    _told(name, "triggered", instant.isoformat(), as_json=as_json)


def _with(redis: str | None, database: str | None, namespace: str, ask: Callable[[Crons], Awaitable[T]]) -> T:
    if not database:
        raise CannotError("where is the database? Set RCK_DATABASE or add --database postgresql+asyncpg://…")

    async def run() -> T:
        async with open_redis(redis, namespace) as side, make_database(database, side.settings) as store:
            mailboxes = Mailboxes(
                side.lanes, side.lanes, side.keyspace, side.settings.mailbox, side.settings.dedupe
            )
            messages = TickMessages(mailboxes, dict(side.standing.shard_counts))
            timeout = side.settings.statement_timeout.total_seconds()
            crons = Crons(SqlCronView(store, namespace), messages, await _clock(side), timeout)
            try:
                return await ask(crons)
            except (LookupError, RuntimeError) as error:
                raise CannotError(str(error)) from error

    return anyio.run(run)


async def _clock(side: RedisSide) -> Clock:
    """Return a clock that goes as Redis' does: this host's may be set otherwise."""
    clock, sent = Clock(), Clock.boot()
    seconds, microseconds = await side.lanes.call(side.keyspace.home_slot, "TIME", repeat=True)
    clock.observe(int(seconds) + int(microseconds) / 1e6, sent, Clock.boot())
    return clock


def _cells(one: CronInfo) -> tuple[object, ...]:
    state = "paused" if one.paused else (one.breaker or "ok").replace("closed", "ok")
    return (
        one.name,
        one.expression,
        one.timezone,
        state,
        one.pending,
        one.run_count,
        one.failures,
        _short(one.last_run),
        ", ".join(_short(instant) for instant in one.next),
        (one.last_error or "")[:60],
    )


def _short(instant: datetime | None) -> str:
    return "-" if instant is None else f"{instant:%Y-%m-%d %H:%M:%S}"


def _told(name: str, did: str, what: Any, *, as_json: bool) -> None:
    if as_json:
        output.show_json({"cron": name, did: what})
    else:
        click.echo(f"{did} {name}" if what is True else f"{did} {name}: {what}")
