"""Several fenced writers and what is known of them: the parent's side of every ownership fault test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.testing import ChildEvent, ChildProcess, History, Verdict, together, until
from redis_cluster_kit.testing.checkers import (
    Commit,
    Grant,
    Install,
    Load,
    OwnershipEvent,
    commit_fences,
    fences_increase,
    no_stale_commit,
    ownership_spans,
    recovery,
    takeover_state,
)

PROGRAM = f"{Path(__file__).with_name('fenced_writer.py')}:main"
STORES = ("redis", "database")
Where = Callable[[ChildEvent], bool]


@dataclass
class Crew:
    """Runners of one cluster, in processes of their own. Leave it with `close`."""

    redis: str
    database: str
    namespace: str
    folder: Path
    shards: int = 8
    ttl: float = 1.0
    nodes: Sequence[str] = ()
    pythonpath: Sequence[Path] = ()
    pause: float = 0.08
    children: dict[str, ChildProcess] = field(default_factory=dict[str, ChildProcess])
    stopped: set[str] = field(default_factory=set[str])
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def names(self) -> list[str]:
        """Every shard's name."""
        return [f"default:{number}" for number in range(self.shards)]

    @property
    def live(self) -> dict[str, ChildProcess]:
        """The runners that run: neither dead nor stopped."""
        return {
            name: child
            for name, child in self.children.items()
            if child.returncode is None and name not in self.stopped
        }

    async def join(self, *names: str, **options: Any) -> None:
        """Start runners at once; return when all have joined and listen to signals."""
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(self._join, name, options)

    async def _join(self, name: str, options: Mapping[str, Any]) -> None:
        given: dict[str, Any] = {
            "redis": self.redis,
            "database": self.database,
            "namespace": self.namespace,
            "name": name,
            "history": str(self.folder / f"{name}.jsonl"),
            "shards": self.shards,
            "ttl": self.ttl,
            "nodes": list(self.nodes),
            "serves": ["account"],
            "wants": {},
            "pause": self.pause,
        }
        child = ChildProcess(PROGRAM, json.dumps(given | options), name=name, pythonpath=self.pythonpath)
        await self._stack.enter_async_context(child)
        self.children[name] = child
        await child.wait_for("serving", timeout=30)

    async def close(self) -> None:
        """End every runner; one that crashed fails the test."""
        for name in list(self.stopped):
            await self.wake(name)
        await self._stack.aclose()

    # Faults on runners, each with the time its effect was seen

    async def kill(self, name: str) -> float:
        record = await self.children[name].kill()
        self.stopped.discard(name)
        return record.sent

    async def stop(self, name: str) -> float:
        self.stopped.add(name)
        record = await self.children[name].stop()
        assert record.seen is not None
        return record.seen

    async def wake(self, name: str) -> float:
        self.stopped.discard(name)
        return (await self.children[name].wake()).sent

    # Facts

    def owned(self, name: str) -> dict[str, int]:
        """What a runner owned at its last pulse and has not lost since, with its fences."""
        lost: set[str] = set()
        for event in reversed(self.children[name].events):
            if event.name == "lost":
                lost.add(event["shard"])
            elif event.name == "pulse":
                owned: dict[str, int] = event["owned"]
                return {shard: fence for shard, fence in owned.items() if shard not in lost}
        return {}

    def owner(self, shard: str) -> str | None:
        """The running runner that owned the shard at its last pulse, with the highest fence."""
        owners = {self.owned(name).get(shard, 0): name for name in self.live}
        return owners[max(owners)] if owners and max(owners) else None

    def accepted(self, store: str, after: float) -> set[str]:
        """The shards of which running runners wrote since then."""
        pulses = (event for child in self.live.values() for event in _since(child.events, after))
        return {shard for pulse in pulses if pulse.name == "pulse" for shard in pulse[store]}

    async def serves(
        self, after: float | None = None, *, within: float = 30.0, stores: Iterable[str] = STORES
    ) -> float:
        """Wait until running runners have written every shard in the stores; return when that was seen."""
        begin = Clock.boot() if after is None else after
        for store in stores:
            await until(
                lambda store=store: self.accepted(store, begin) >= set(self.names),
                timeout=within,
                what=f"every shard written in {store}",
                every=0.02,
            )
        return Clock.boot()

    async def shared(self, within: float = 30.0) -> None:
        """Wait until every running runner owns its fair share, and all shards are owned."""
        least, most = self.shards // len(self.live), -(-self.shards // len(self.live))

        def fair() -> bool:
            counts = [len(self.owned(name)) for name in self.live]
            return sum(counts) == self.shards and all(least <= count <= most for count in counts)

        try:
            await until(fair, timeout=within, what="a fair share for everybody", every=0.02)
        except AssertionError as error:
            await self._explain(error)
            raise

    def first(
        self,
        name: str,
        after: float,
        *,
        of: Iterable[str] = (),
        where: Where | None = None,
    ) -> dict[str, ChildEvent]:
        """For each shard the first event of that name after a time, of any runner or of those named."""
        found: dict[str, ChildEvent] = {}
        for runner in of or self.children:
            for event in self.children[runner].events:
                if event.name != name or event.t_boot < after or (where is not None and not where(event)):
                    continue
                shard = event["shard"]
                if shard not in found or event.t_boot < found[shard].t_boot:
                    found[shard] = event
        return found

    async def health(self, name: str) -> ChildEvent:
        """Ask a runner for its health."""
        asked = Clock.boot()
        await self.children[name].send({"do": "health"})
        return await self.children[name].wait_for("health", after=asked)

    async def healthy(self, within: float = 30.0) -> None:
        """Wait until every running runner says that it is ready."""
        for name in self.live:

            async def ready(name: str = name) -> bool:
                return bool((await self.health(name))["ready"])

            try:
                await until(ready, timeout=within, what=f"{name} to be ready", every=0.1)
            except AssertionError as error:
                await self._explain(error)
                raise

    async def _explain(self, error: AssertionError) -> None:
        """Add what every running runner says and has: a fault test that fails once may not fail again."""
        for name in self.live:
            report = await self.health(name)
            error.add_note(f"{name} owns {self.owned(name)}, reasons {report['reasons']}")
            error.add_note(self.children[name].tail)

    # Judgement

    def history(self) -> History:
        return History.load(self.folder)

    def verdict(self) -> Verdict:
        """What all histories say: I1 in both stores, I5 of the grants, I8 of the database's loads."""
        return judge(self.history())

    def spans_verdict(self, begin: float, until: float, bound: float, ends: Mapping[str, float]) -> Verdict:
        """I9: how long shards were without an owner between two times."""
        events = [
            OwnershipEvent(event["shard"], name, kind, event.t_boot)
            for name, child in self.children.items()
            for event in child.events
            if (kind := {"gained": "granted", "lost": "released"}.get(event.name)) is not None
        ]
        spans = ownership_spans(events, ends=ends)
        return recovery(spans, shards=self.names, begin=begin, until=until, bound=bound)


def _since(events: list[ChildEvent], begin: float) -> Iterator[ChildEvent]:
    """The events since then, and of pulses those that tell of nothing earlier."""
    for event in reversed(events):
        if event.fields.get("since", event.t_boot) < begin:
            return
        yield event


def judge(history: History) -> Verdict:
    """Check fences of grants, and commits of both stores against what was installed before them."""
    grants = history.rows("grant", Grant)
    installs = history.rows("install", Install)
    commits = history.rows("commit", Commit)
    # The database's versions are its own order, whatever clients saw.
    ordered = sorted((c for c in commits if c.resource.startswith("database:")), key=lambda c: c.version)
    loads = [
        Load(note.value["resource"], note.value["fence"], note.value["version"], note.value["asked"])
        for note in history.of("load")
    ]
    return together(
        fences_increase(grants),
        no_stale_commit(installs, commits),
        _renamed(commit_fences(ordered), "database_"),
        takeover_state(ordered, loads),
    )


def _renamed(verdict: Verdict, prefix: str) -> Verdict:
    return Verdict(verdict.violations, {prefix + name: count for name, count in verdict.examined.items()})
