"""The demo's stage: starts the servers and the pods, lets the story be told, and sums up."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import anyio
import click

from redis_cluster_kit.cli import output
from redis_cluster_kit.cli.commands import CannotError
from redis_cluster_kit.cli.stores import open_cluster, read_settings
from redis_cluster_kit.clock import Clock
from redis_cluster_kit.embedded import RedisServer, ServerStartError

from .pods import NAMESPACE, Pods
from .promises import Promise
from .story import Story
from .view import Live, Plain, Scene, Silent
from .watching import Watcher

_CLOSING = """
What you have just seen: processes that own a cluster's shards together, through leases in Redis and fences
in a database. The killed one could not say goodbye, so its shards waited until its leases ended, and were
then taken by whoever was there. The polite one gave its shards away first. Each new owner got a higher
fence: every write under an older one is refused from then on, so that an owner that was only asleep changes
nothing when it wakes up (the fault tests put some to sleep; this demo does not).
"""


class Stores(NamedTuple):
    """Where the demo's servers are."""

    redis: str
    database: str


def play(*, seconds: float, pods: int, no_kill: bool, as_json: bool) -> bool:
    """Perform it once and sum it up; return whether every promise was kept."""
    began = Clock.boot()
    view: Silent | Plain | Live = Silent() if as_json else Live() if output.is_terminal() else Plain()
    ttl = read_settings().lease.ttl
    story = anyio.run(perform, view, pods, began + seconds, ttl, not no_kill)
    took = Clock.boot() - began
    if as_json:
        output.show_json(as_data(story, view, took))
    else:
        sum_up(story.promises, took)
    return all(promise.kept for promise in story.promises)


async def perform(
    view: Silent | Plain | Live, count: int, until: float, ttl: timedelta, with_kill: bool
) -> Story:
    """Set the stage, and play."""
    story: Story | None = None
    async with anyio.create_task_group() as drawing:
        if isinstance(view, Live):
            drawing.start_soon(view.draw)
        view.say("a Valkey server and an SQLite file are made")
        async with _servers() as stores, Pods(stores.redis, stores.database, ttl) as pods:
            view.say(f"{count} pods start, each a process of its own")
            await pods.start(count)
            async with open_cluster(stores.redis, NAMESPACE) as side, anyio.create_task_group() as watching:
                watcher = Watcher(side, await side.look())
                if isinstance(view, Plain | Live):
                    view.scene = Scene(pods, lambda: watcher.latest)
                watching.start_soon(watcher.watch)
                story = Story(pods, watcher, view, ttl, until, with_kill)
                await story.tell()
                watching.cancel_scope.cancel()
        drawing.cancel_scope.cancel()
    assert story is not None
    return story


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


def sum_up(promises: list[Promise], took: float) -> None:
    """Print what was promised and what was seen."""
    click.echo("")
    for promise in promises:
        verdict = click.style("kept  ", fg="green") if promise.kept else click.style("BROKEN", fg="red")
        limit = "" if promise.limit is None else f" (promised: {promise.limit:g} s)"
        click.echo(f"{verdict} {promise.promise}: {promise.seen}{limit}")
    click.echo(_CLOSING)
    click.echo(f"It took {took:.1f} s.")


def as_data(story: Story, view: Silent, took: float) -> dict[str, object]:
    """Return what `--json` prints."""
    return {
        "kept": all(promise.kept for promise in story.promises),
        "promises": story.promises,
        "lease_ttl": story.ttl.total_seconds(),
        "takeover_seconds": story.takeover and story.takeover._asdict(),
        "hand_off_seconds": story.hand_off and story.hand_off._asdict(),
        "pods": [
            {"pod": pod.name, "runner": pod.runner, "pid": pod.child.pid, "state": pod.state}
            for pod in story.pods.all
        ],
        "told": [{"at": at, "text": text} for at, text in view.said],
        "took": round(took, 2),
    }
