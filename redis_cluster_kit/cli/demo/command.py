"""`rck demo`: its options. What it needs is loaded when it is called; other commands need not wait."""

from __future__ import annotations

import click

from redis_cluster_kit.cli.commands import PROBLEM, Command, json_option


@click.command(cls=Command, short_help="Show what happens when processes go.")
@click.option(
    "--seconds",
    type=click.FloatRange(1, 300),
    default=25.0,
    show_default=True,
    help="About how long it lasts; it takes longer if that is too short for what happens.",
)
@click.option("--pods", type=click.IntRange(2, 20), default=3, show_default=True, help="How many begin.")
@click.option(
    "--rate",
    type=click.FloatRange(1, 5_000),
    default=400.0,
    show_default=True,
    help="How many transfers a second customers ask for; each is two messages.",
)
@click.option("--no-kill", is_flag=True, help="Leave the SIGKILL out.")
@json_option
@click.pass_context
def demo(
    context: click.Context, *, seconds: float, pods: int, rate: float, no_kill: bool, as_json: bool
) -> None:
    """Show a bank on a cluster of real processes: one is killed, one joins, one leaves, and no cent is lost.

    It starts its own Valkey and SQLite file, needs nothing else and leaves nothing behind. The lease TTL is
    5 s, or RCK_LEASE_TTL. Exit code 1 if a promise was broken, the books not balancing among them.
    """
    from .stage import play

    if not play(seconds=seconds, pods=pods, rate=rate, no_kill=no_kill, as_json=as_json):
        context.exit(PROBLEM)
