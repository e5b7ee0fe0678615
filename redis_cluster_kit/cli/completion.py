"""`rck completion`: what makes a shell complete commands and options of `rck`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .commands import CannotError, Command


@click.command(cls=Command, short_help="Make a shell complete commands and options.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell: eval "$(rck completion bash)"."""
    kind = get_completion_class(shell)
    if kind is None:
        raise CannotError(f"no completion for {shell}")
    root = context.find_root()
    try:
        click.echo(kind(root.command, {}, root.info_name or "rck", "_RCK_COMPLETE").source())
    except RuntimeError as error:  # the shell itself is looked at, and is not there or too old
        raise CannotError(str(error)) from error
