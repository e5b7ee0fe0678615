"""`rck run`: hosts a cluster object in processes of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import click

from . import output
from .commands import Command, json_option
from .reloading import changed_files
from .supervisor import Supervisor


@click.command(cls=Command, short_help="Host a cluster in processes of its own.")
@click.argument("target", metavar="MODULE:ATTRIBUTE")
@click.option(
    "-n",
    "--processes",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="How many processes, each a runner of its own.",
)
@click.option("--reload", is_flag=True, help="Start anew when a Python file here changes; for development.")
@json_option
@click.pass_context
def run(context: click.Context, *, target: str, processes: int, reload: bool, as_json: bool) -> None:
    """Host a cluster, like app:cluster, or a function that makes one.

    Each process joins and serves until SIGTERM or SIGINT, which are passed on: then it gives its shards
    away and leaves; a second signal ends it at once. A process that crashes is told and started again,
    after 1 s at first and 30 s at most.
    """

    def tell(event: str, facts: dict[str, Any]) -> None:
        if as_json:
            output.show_json({"event": event, **facts})
        else:
            click.echo(f"rck run: {facts['text']}", err=True)

    async def supervise() -> int:
        changes = changed_files(Path.cwd()) if reload else None
        return await Supervisor(target, processes, tell, changes).run()

    context.exit(anyio.run(supervise))
