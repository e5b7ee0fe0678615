"""The reference page of `rck`, made from the commands; a test keeps `docs/reference/cli.md` equal."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

_HEAD = """
# The command line

Generated from `redis_cluster_kit/cli`; a test keeps both equal. Needs the `cli` extra:
`pip install 'redis-cluster-kit[cli]'`.

Where the stores are comes from `RCK_REDIS`, `RCK_DATABASE` and `RCK_NAMESPACE` or from options; everything
else (`RCK_LEASE_TTL`, `RCK_REDIS_TLS_CA`, …) from the variables the services have. The lease nodes are those
of the cluster's record; if they need a password, `RCK_LEASE_NODES` has their URLs.

`--json` answers in JSON, one value in one line (`run` and `status --watch`: one a line). Without a terminal
tables are plain text. Exit codes: 0 done, 1 a problem was found, 2 it could not be done, 130 interrupted.

Shell completion: `eval "$(rck completion bash)"`, the same with `zsh`; `rck completion fish | source`.
"""


def reference_page(program: click.Group) -> str:
    """Return the page."""
    lines = _HEAD.strip().splitlines()
    for context in _commands(program, click.Context(program, info_name="rck")):
        lines += ["", f"## {context.command_path}", "", *_section(context)]
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, parent: click.Context) -> Iterator[click.Context]:
    for name, command in group.commands.items():
        context = click.Context(command, info_name=name, parent=parent)
        yield context
        if isinstance(command, click.Group):
            yield from _commands(command, context)


def _section(context: click.Context) -> Iterator[str]:
    command = context.command
    yield "```"
    yield f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    yield "```"
    yield ""
    yield from inspect.cleandoc(command.help or "").splitlines()
    rows = [_row(option) for option in command.params if isinstance(option, click.Option)]
    if rows:
        yield ""
        yield "| option | variable | default | meaning |"
        yield "| --- | --- | --- | --- |"
        yield from rows


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    taken = option.metavar or ("" if option.is_flag else "NUMBER")
    variable = f"`{option.envvar}`" if option.envvar else ""
    default = f"`{option.default}`" if option.show_default and not option.is_flag else ""
    words = f"{names} {taken}".strip()
    return f"| {words} | {variable} | {default} | {option.help} |"
