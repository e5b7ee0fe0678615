"""`rck bench`: starts the benchmark suite, which is in the repository and not in the wheel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TextIO

import click

import redis_cluster_kit

from . import output
from .commands import CannotError, Command, json_option

_ELSEWHERE = (
    "the benchmarks are in the project's repository, not in the installed package: get its sources, then run "
    "`pip install 'nox[uv]' && nox -s bench` there"
)


@click.command(
    cls=Command, short_help="Measure what is promised.", context_settings={"ignore_unknown_options": True}
)
@click.argument("names", nargs=-1, type=click.UNPROCESSED, metavar="[NAME]...")
@click.option("--list", "listing", is_flag=True, help="Only say which there are.")
@json_option
@click.pass_context
def bench(context: click.Context, *, names: tuple[str, ...], listing: bool, as_json: bool) -> None:
    """Run all benchmarks, or those named; exit code 1 if a promise is broken.

    Works where the repository is: the suite is not part of the installed package. It starts its own servers
    and takes some minutes; `nox -s bench` does the same in an environment of its own. Options after a name
    go to that benchmark.
    """
    root = repository()
    if listing:
        found = _listed(root)
        if as_json:
            output.show_json(found)
        else:
            click.echo("\n".join(found))
        return
    # With --json what the suite prints goes where nobody parses it.
    done = _suite(root, *names, stdout=sys.stderr if as_json else None)
    if as_json:
        output.show_json({"benchmarks": names or _listed(root), "kept": done == 0, "exit_code": done})
    context.exit(done)


def repository() -> Path:
    """Return the folder that has the suite; `CannotError` where this is an installed package."""
    root = Path(redis_cluster_kit.__file__).parents[1]
    if not (root / "benchmarks" / "__main__.py").is_file():
        raise CannotError(_ELSEWHERE)
    return root


def _suite(root: Path, *words: str, stdout: TextIO | None) -> int:
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, cwd=root, stdout=stdout, check=False).returncode  # noqa: S603 - its user's words


def _listed(root: Path) -> list[str]:
    command = [sys.executable, "-m", "benchmarks", "--list"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise CannotError(f"the benchmarks cannot be listed: {done.stderr.strip()}")
    return [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
