"""What every command of `rck` shares: its options, and how a failure is told.

A failure is one line on stderr (one JSON object on stdout with `--json`) and exit code 2: no traceback, and
no secrets, since only errors that hide them get here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from redis_cluster_kit.errors import ClusterError, Execution, KitError, PersistenceFailedError, redact

F = TypeVar("F", bound=Callable[..., Any])

PROBLEM = 1
CANNOT = 2
INTERRUPTED = 130

_WHERE = {"redis": "RCK_REDIS or --redis", "database": "RCK_DATABASE or --database"}
_IN_WORDS = (
    (re.compile(r"Multiple exceptions: |\[Errno -?\d+\] |\b(ConnectionRefusedError|gaierror) "), ""),
    (re.compile(r"Connect call failed \('([^']*)', (\d+)[^)]*\)"), r"nobody listens at \1 port \2"),
    (re.compile(r"Connect call failed '([^']*)'"), r"nobody listens at \1"),
)


class CannotError(Exception):
    """What was asked cannot be done; the text says why and what to do."""


class Command(click.Command):
    """A command whose expected failures are told in a line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; expected failures end the process with exit code 2, Ctrl-C with 130."""
        try:
            return super().invoke(ctx)
        except (Exception, BaseExceptionGroup, KeyboardInterrupt) as raised:
            error = only(raised)
            if isinstance(error, KeyboardInterrupt):
                return ctx.exit(INTERRUPTED)
            if not isinstance(error, CannotError | KitError):
                raise
            self._tell(ctx, error)
            return ctx.exit(CANNOT)

    def _tell(self, ctx: click.Context, error: CannotError | KitError) -> None:
        text = explain(error) + advise(error)
        if ctx.params.get("as_json"):
            click.echo(msgspec.json.encode({"error": text}))
        else:
            click.echo(f"{ctx.command_path}: {text}", err=True)


def only(error: BaseException) -> BaseException:
    """Return what a group of one holds: task groups wrap what passes through them."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def explain(error: BaseException) -> str:
    """Return a failure in the words of somebody at a terminal, without secrets."""
    if isinstance(error, PersistenceFailedError):
        store = "Redis" if error.store == "redis" else f"the {error.store}"
        return redact(f"{store} cannot be used: {_in_words(error.detail or str(error))}")
    if isinstance(error, ClusterError):
        return str(error)
    return redact(str(error))


def advise(error: BaseException) -> str:
    """Return what to do about a store that cannot be used; empty where the text says it already."""
    if not isinstance(error, PersistenceFailedError) or error.store not in _WHERE:
        return ""
    if error.execution is not Execution.NOT_EXECUTED:
        return ""
    where = _WHERE[error.store]
    return f"; is it running, and is {where} right?" if error.is_retryable else f"; correct {where}"


def _in_words(text: str) -> str:
    for pattern, words in _IN_WORDS:
        text = pattern.sub(words, text)
    return text


def json_option(function: F) -> F:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")(function)


def database_options(function: F) -> F:
    """Add `--database`, `--namespace` and `--json`, for what only the database knows."""
    return database_option(_namespace_option(json_option(function)))


def redis_options(function: F) -> F:
    """Add `--redis`, `--namespace` and `--json`."""
    redis = click.option(
        "--redis",
        envvar="RCK_REDIS",
        show_envvar=True,
        metavar="URL",
        help="The data Redis; a password is safer in the variable than here.",
    )
    return redis(_namespace_option(json_option(function)))


def _namespace_option(function: F) -> F:
    return click.option(
        "--namespace",
        envvar="RCK_NAMESPACE",
        show_envvar=True,
        metavar="NAME",
        default="default",
        show_default=True,
        help="The cluster's namespace.",
    )(function)


def database_option(function: F) -> F:
    """Add `--database`."""
    return click.option(
        "--database",
        envvar="RCK_DATABASE",
        show_envvar=True,
        metavar="URL",
        help="The cluster's database: postgresql+asyncpg://… or sqlite+aiosqlite:///….",
    )(function)


def confirm(question: str, *, yes: bool, is_terminal: bool) -> None:
    """Ask before something is changed; without a terminal only `--yes` will do."""
    if yes:
        return
    if not is_terminal:
        raise CannotError("this changes something: add --yes where nobody can be asked")
    if not click.confirm(question):
        raise CannotError("not done")
