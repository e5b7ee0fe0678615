"""`rck executions`: work of singletons that failed too often, to list, look at, retry and drop by hand."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import click

from redis_cluster_kit.identity import check_name
from redis_cluster_kit.runtime import SetAsideExecutions
from redis_cluster_kit.storage import Journal, RecordStore, SetAside, SingletonExecutions

from . import output
from .commands import PROBLEM, CannotError, Command, confirm, database_options
from .stores import make_database, read_settings

T = TypeVar("T")

_TIMEOUT = 5.0


@click.group()
def executions() -> None:
    """Executions set aside: work of singletons whose durable steps ran and which failed too often."""


@executions.command("list", cls=Command)
@database_options
def list_them(*, database: str | None, namespace: str, as_json: bool) -> None:
    """List executions that are set aside, oldest first."""
    found = _with(database, namespace, lambda aside: aside.list())
    if as_json:
        output.show_json([_facts(one) for one in found])
        return
    rows = [(one.id, one.steps, one.failures, _status(one), one.error) for one in found]
    output.show_table(("execution", "steps", "failures", "status", "error"), rows)


@executions.command("show", cls=Command)
@database_options
@click.argument("id")
def show(*, database: str | None, namespace: str, as_json: bool, id: str) -> None:
    """Show one execution that is set aside, with the durable calls in its journal."""

    async def look(aside: SetAsideExecutions) -> dict[str, Any]:
        for one in await aside.list():
            if one.id == id:
                recorded = await aside.recorded(id)
                calls = [
                    {
                        "what": call.what,
                        "name": call.name,
                        "bytes": call.size,
                        "recorded_at": call.recorded_at.isoformat(),
                    }
                    for call in recorded
                ]
                return _facts(one) | {"recorded": calls}
        raise CannotError(f"there is no execution {id!r} set aside")

    facts = _with(database, namespace, look)
    if as_json:
        output.show_json(facts)
        return
    for call in facts.pop("recorded"):
        facts[f"{call['what']} {call['name']}"] = f"{call['bytes']} bytes, {call['recorded_at']}"
    width = max(map(len, facts))
    click.echo("\n".join(f"{name:{width}}  {value}" for name, value in facts.items()))


@executions.command("retry", cls=Command)
@database_options
@click.argument("id")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def retry(
    context: click.Context, *, database: str | None, namespace: str, as_json: bool, id: str, yes: bool
) -> None:
    """Let its singleton go on with an execution, as soon as the one that is open has ended."""
    confirm(f"Retry {id}?", yes=yes, is_terminal=sys.stdin.isatty())
    done = _with(database, namespace, lambda aside: aside.retry(id))
    _told(context, "retried", id, done=done, as_json=as_json)


@executions.command("drop", cls=Command)
@database_options
@click.argument("id")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def drop(
    context: click.Context, *, database: str | None, namespace: str, as_json: bool, id: str, yes: bool
) -> None:
    """Forget an execution for good, with what its steps returned."""
    confirm(f"Drop {id} for good?", yes=yes, is_terminal=sys.stdin.isatty())
    done = _with(database, namespace, lambda aside: aside.drop(id))
    _told(context, "dropped", id, done=done, as_json=as_json)


def _with(database: str | None, namespace: str, ask: Callable[[SetAsideExecutions], Awaitable[T]]) -> T:
    if not database:
        raise CannotError("where is the database? Set RCK_DATABASE or add --database")
    url = database

    async def run() -> T:
        async with make_database(url, read_settings()) as opened:
            await opened.prepare(create_tables=False)
            if await RecordStore(opened, namespace).read(timeout=_TIMEOUT) is None:
                raise CannotError(
                    f"nobody has joined namespace {namespace!r} with this database yet; "
                    "is RCK_NAMESPACE or --namespace right?"
                )
            journal = Journal(opened, namespace)
            singletons = SingletonExecutions(opened, journal, namespace)
            try:
                return await ask(SetAsideExecutions(journal, singletons, timeout=_TIMEOUT))
            except (ValueError, RuntimeError) as error:
                raise CannotError(str(error)) from error

    try:
        check_name("namespace", namespace)
    except ValueError as error:
        raise CannotError(str(error)) from error
    return anyio.run(run)


def _facts(one: SetAside) -> dict[str, Any]:
    return {
        "id": one.id,
        "singleton": one.singleton,
        "status": _status(one),
        "steps": one.steps,
        "failures": one.failures,
        "error": one.error,
        "opened_at": one.opened_at.isoformat(),
        "set_aside_at": one.set_aside_at.isoformat(),
    }


def _status(one: SetAside) -> str:
    return "put back" if one.is_put_back else "set aside"


def _told(context: click.Context, did: str, id: str, *, done: bool, as_json: bool) -> None:
    if as_json:
        output.show_json({"id": id, did: done})
    else:
        click.echo(f"{did} {id}" if done else f"there is no execution {id} set aside")
    if not done:
        context.exit(PROBLEM)
