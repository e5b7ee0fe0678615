"""The demo's stage: starts the servers and the pods, lets the story be told, and sums up."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import anyio
import click
from prometheus_client import CollectorRegistry

from redis_cluster_kit.cli import output
from redis_cluster_kit.cli.commands import CannotError
from redis_cluster_kit.cli.stores import open_cluster, read_settings
from redis_cluster_kit.clock import Clock
from redis_cluster_kit.cluster import Cluster
from redis_cluster_kit.embedded import RedisServer, ServerStartError

from .customers import Customers
from .figures import whole_run
from .hosting import NAMESPACE, settings_of
from .oversight import Oversight
from .pods import Pods
from .promises import Promise
from .story import Story
from .view import Live, Plain, Scene, Silent, wrapped
from .watching import Watcher, strokes

_BEGINNING = """
What you have just seen: processes that own a cluster's shards together, through leases in Redis and fences in
a database, and serve a bank's accounts on them while its customers pay one another. A transfer takes the
money and sends the message that brings it in one atomic commit, so neither happens without the other; a
customer who hears nothing asks again under the same key, and gets the first answer.
"""
_KILLED = """
The killed process could not say goodbye: its accounts waited until its leases ended, and were then served by
whoever was there, the auditor too, which went on from the last state it had saved.
"""
_END = """
The polite one gave its shards away first. Each new owner got a higher fence: every write under an older one
is refused from then on, so that an owner that was only asleep changes nothing when it wakes up (the fault
tests put some to sleep; this demo does not). A cron struck every second: its instants are rows in the
database before they are messages, so none is lost and none comes twice. In the end every book was read and
compared with what the customers had been told.
"""
_WIDTH = 100
_WHOLE = 100_000


class Stores(NamedTuple):
    """Where the demo's servers are."""

    redis: str
    database: str


class Plan(NamedTuple):
    """What is asked of a performance. `until` is when it should end, on the boot clock."""

    pods: int
    rate: float
    until: float
    ttl: timedelta
    with_kill: bool


def play(*, seconds: float, pods: int, rate: float, no_kill: bool, as_json: bool) -> bool:
    """Perform it once and sum it up; return whether every promise was kept."""
    began = Clock.boot()
    view: Silent | Plain | Live = Silent() if as_json else Live() if output.is_terminal() else Plain()
    plan = Plan(pods, rate, began + seconds, read_settings().lease.ttl, not no_kill)
    story = anyio.run(perform, view, plan)
    took = Clock.boot() - began
    if as_json:
        output.show_json(as_data(story, view, took))
    else:
        sum_up(story, took)
    return all(promise.kept for promise in story.promises)


async def perform(view: Silent | Plain | Live, plan: Plan) -> Story:
    """Set the stage, and play."""
    story: Story | None = None
    async with anyio.create_task_group() as drawing:
        if isinstance(view, Live):
            drawing.start_soon(view.draw)
        view.say("a Valkey server and an SQLite file are made")
        async with _servers() as stores, Pods(stores.redis, stores.database, plan.ttl) as pods:
            view.say(f"{plan.pods} pods start, each a process of its own")
            await pods.start(plan.pods)
            async with _outside(stores, plan.ttl) as cluster, open_cluster(stores.redis, NAMESPACE) as side:
                watcher = Watcher(side, await side.look())
                customers, oversight = Customers(cluster, plan.rate), Oversight(cluster)
                if isinstance(view, Plain | Live):
                    view.scene = Scene(pods, watcher, customers, oversight)
                story = Story(pods, watcher, customers, oversight, view, plan.ttl, plan.until, plan.with_kill)
                async with anyio.create_task_group() as beside:
                    for work in (watcher.watch, oversight.watch, customers.come):
                        beside.start_soon(work)
                    await story.tell()
                    beside.cancel_scope.cancel()
        drawing.cancel_scope.cancel()
    assert story is not None
    return story


def _outside(stores: Stores, ttl: timedelta) -> Cluster:
    """A member of the cluster that only sends: the customers' way in."""
    return Cluster(
        stores.redis,
        stores.database,
        namespace=NAMESPACE,
        name="customers",
        hosting=False,
        settings=settings_of(ttl),
        metrics_registry=CollectorRegistry(),
    )


@asynccontextmanager
async def _servers() -> AsyncGenerator[Stores]:
    """A server dies with the thread that started it: this one, which lasts."""
    with tempfile.TemporaryDirectory(prefix="rck-demo-") as folder:
        try:
            server = RedisServer.start()
        except ServerStartError as error:
            raise CannotError(str(error)) from error
        try:
            yield Stores(server.url, f"sqlite+aiosqlite:///{Path(folder) / 'demo.db'}")
        finally:
            server.stop()


def sum_up(story: Story, took: float) -> None:
    """Print what was promised and what was seen."""
    click.echo("")
    show_promises(story.promises)
    messages, pace = whole_run(story.pods.all)
    if pace.p50 is not None and pace.p99 is not None:
        waited = ", those that waited for the killed pod's leases among them" if story.takeover else ""
        show_text(
            f"{messages:,} messages were handled. From the mailbox to the handler the median took "
            f"{pace.p50 * 1000:.1f} ms, one of a hundred more than {pace.p99 * 1000:.1f} ms{waited}."
        )
    show_text(" ".join([_BEGINNING, _KILLED if story.with_kill else "", _END]))
    click.echo("")
    click.echo(f"It took {took:.1f} s.")


def show_text(text: str) -> None:
    """Print a paragraph, after an empty line."""
    click.echo("\n" + "\n".join(wrapped(" ".join(text.split()), min(_width(), _WIDTH))))


def show_promises(promises: list[Promise]) -> None:
    """Print each promise with its verdict."""
    for promise in promises:
        verdict = "kept  " if promise.kept else "BROKEN"
        limit = "" if promise.limit is None else f" (promised: {promise.limit:g} s)"
        text = f"{promise.promise}: {promise.seen}{limit}"
        first, *more = wrapped(f"{verdict} {text}", _width(), indent=7)
        colour = "green" if promise.kept else "red"
        click.echo(click.style(verdict, fg=colour) + first[len(verdict) :])
        for line in more:
            click.echo(line)
    if any(not promise.kept and promise.limit is not None for promise in promises):
        show_text(
            "A time was missed. Is this machine busy with something else? --pods and --rate ask less of it."
        )


def _width() -> int:
    """How wide lines may be: whoever reads a file or a pipe wants them whole."""
    return shutil.get_terminal_size().columns if output.is_terminal() else _WHOLE


def as_data(story: Story, view: Silent, took: float) -> dict[str, object]:
    """Return what `--json` prints."""
    messages, pace = whole_run(story.pods.all)
    found = story.reckoning
    return {
        "kept": all(promise.kept for promise in story.promises),
        "promises": story.promises,
        "lease_ttl": story.ttl.total_seconds(),
        "takeover_seconds": story.takeover and story.takeover._asdict(),
        "hand_off_seconds": story.hand_off and story.hand_off._asdict(),
        "audit_gap_seconds": story.audit_gap,
        "audits": story.oversight.audit,
        "ticks": {"seconds": len({one.at for one in strokes(story.pods.all)}), "done": story.ticks_done},
        "transfers": {
            "asked": len(story.customers.transfers),
            "acknowledged": found.acknowledged if found else 0,
            "repeated": found.repeated if found else 0,
        },
        "messages": messages,
        "fenced_writes": pace.fenced,
        "delivery_seconds": {"p50": pace.p50, "p99": pace.p99},
        "pods": [
            {"pod": pod.name, "runner": pod.runner, "pid": pod.child.pid, "state": pod.state}
            for pod in story.pods.all
        ],
        "told": [{"at": at, "text": text} for at, text in view.said],
        "took": round(took, 2),
    }
