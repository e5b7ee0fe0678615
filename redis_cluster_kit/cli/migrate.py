"""`rck migrate`: makes or updates the tables, for services that may not."""

from __future__ import annotations

import sys

import anyio
import click

from redis_cluster_kit.storage import (
    SCHEMA_VERSION,
    Database,
    is_too_new,
    pending_steps,
    stored_version,
)

from . import output
from .commands import PROBLEM, CannotError, Command, confirm, database_option, json_option
from .stores import make_database, read_settings

_TIMEOUT = 60.0
_ANSWER_WITHIN = 5.0


@click.command(cls=Command)
@database_option
@json_option
@click.option("--check", is_flag=True, help="Change nothing; exit code 1 if something would be done.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def migrate(context: click.Context, *, database: str | None, as_json: bool, check: bool, yes: bool) -> None:
    """Bring the database's tables up to this release.

    For services whose own role may not create tables (RCK_DATABASE_CREATE_TABLES=false): run it with a role
    that may, before the new release starts. Runners of the release before go on meanwhile.
    """
    if not database:
        raise CannotError("where is the database? Set RCK_DATABASE or add --database")
    opened = make_database(database, read_settings())
    found = anyio.run(_version, opened)
    if is_too_new(found):
        raise CannotError(
            f"the tables have version {found}, made by a newer release; this one knows {SCHEMA_VERSION}"
        )
    steps = pending_steps(found)
    if steps and not check:
        if not as_json:
            click.echo("\n".join(steps))
        confirm(f"Migrate {opened!r} from version {found} to {SCHEMA_VERSION}?", yes=yes, is_terminal=_asks())
        anyio.run(_prepare, opened)
    _tell(found, steps, as_json=as_json, check=check)
    if steps and check:
        context.exit(PROBLEM)


def _tell(found: int, steps: list[str], *, as_json: bool, check: bool) -> None:
    if as_json:
        now = found if check else SCHEMA_VERSION
        output.show_json({"was": found, "now": now, "release": SCHEMA_VERSION, "steps": steps})
    elif not steps:
        click.echo(f"the tables have version {found}: nothing to do")
    elif check:
        click.echo("\n".join([f"version {found}, this release needs {SCHEMA_VERSION}:", *steps]))
    else:
        click.echo(f"migrated from version {found} to {SCHEMA_VERSION}")


def _asks() -> bool:
    return sys.stdin.isatty()


async def _version(database: Database) -> int:
    async with database:
        return await stored_version(database, timeout=_ANSWER_WITHIN)


async def _prepare(database: Database) -> None:
    async with database:
        await database.prepare(True, timeout=_TIMEOUT)
