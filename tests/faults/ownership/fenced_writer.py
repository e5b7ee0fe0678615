"""A runner that attacks its own fences: every shard it ever got is written to until a store refuses.

It writes in Redis and in the database, never looks at a deadline, goes on after its lease is gone, and
records what was granted, accepted and refused. What that means is judged by the parent.
"""

from __future__ import annotations

import json
import random
import signal
import time
import warnings
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from redis_cluster_kit import (
    Cluster,
    DrainSettings,
    Entity,
    LeaseSettings,
    PersistenceFailedError,
    Settings,
    ShardId,
    ShardSettings,
    ShortLeaseWarning,
)
from redis_cluster_kit.clock import Clock
from redis_cluster_kit.errors import Execution, FencedError
from redis_cluster_kit.ownership import OwnedShard, RegisteredFences
from redis_cluster_kit.redis_access import Script
from redis_cluster_kit.runner import Runner
from redis_cluster_kit.storage import SqlState
from redis_cluster_kit.testing import Recorder, commands, emit

WRITE = Script.load("state/write")
NAME = "proof"
PULSE = 0.05
SURELY_NOT = (Execution.NOT_EXECUTED, Execution.REFUSED)


class Account(Entity[None], name="account"):
    """A type that every runner serves unless it is told otherwise."""


class Cart(Entity[None], name="cart"):
    """Another one."""


class Wish(Entity[None], name="wish"):
    """One that a newer release adds."""


TYPES: dict[str, type[Entity[None]]] = {"account": Account, "cart": Cart, "wish": Wish}


@dataclass
class Hold:
    """A shard under one fence of ours. It ends when a store refuses, not when the runner loses it."""

    shard: ShardId
    fence: int
    nonce: str

    def commit(self, store: str) -> dict[str, Any]:
        return {"resource": f"{store}:{self.shard}", "fence": self.fence, "nonce": self.nonce}


@dataclass
class Written:
    """What was accepted since the last pulse."""

    redis: dict[str, int] = field(default_factory=dict[str, int])
    database: dict[str, int] = field(default_factory=dict[str, int])


class FencedWriter(Cluster):
    """Serves a shard by writing to it, from tasks that outlive the shard's scope."""

    options: dict[str, Any]
    recorder: Recorder
    writers: TaskGroup
    written: Written

    @property
    def joined(self) -> Runner:
        assert self._runner is not None
        return self._runner

    async def _serve(self, owned: OwnedShard) -> None:
        hold = Hold(owned.shard, owned.fence, owned.nonce)
        shard = str(owned.shard)
        emit("gained", shard=shard, fence=owned.fence)
        self.writers.start_soon(self.write_redis, hold)
        self.writers.start_soon(self.write_database, hold)
        try:
            if wants := self.options["wants"].get(str(owned.shard.number)):
                now = self.joined.clock.now_ms()
                await self.joined.keys.want(owned.shard, owned.fence, dict.fromkeys(wants, now))
            await owned.ending.wait()
        finally:
            emit("lost", shard=shard, fence=owned.fence, handed_off=owned.ending.is_set(), reason=owned.loss)

    async def write_redis(self, hold: Hold) -> None:
        """Write a singleton's cached state by the shipped script until it answers that the fence is past."""
        runner = self.joined
        slot, state = runner.keyspace.slot(hold.shard), runner.keyspace.state(hold.shard, NAME)
        version = 0
        while True:
            version += 1
            with self.recorder.operation("commit", hold.commit("redis") | {"version": version}) as done:
                try:
                    answer = await WRITE(
                        runner.commands,
                        slot,
                        fence=runner.keyspace.fence(hold.shard),
                        state=state,
                        number=str(hold.fence),
                        nonce=hold.nonce,
                        version=str(version),
                        schema=1,
                        content=b"x",
                        age=0,
                        keep=0,
                    )
                except PersistenceFailedError as error:
                    if error.execution in SURELY_NOT:
                        done.fail(error.detail)
                else:
                    if answer.word in ("fenced", "unfenced"):
                        done.fail(answer.word)
                        return self.refused("redis", hold, answer.word)
                    if answer.word == "ok":  # `stale`: an attempt whose reply was lost had done it
                        done.ok()
                        self.written.redis[str(hold.shard)] = hold.fence
            await self.pause()

    async def write_database(self, hold: Hold) -> None:
        """Load the state, then write version after version until the register says another one owns it."""
        assert self.joined.database is not None
        states = SqlState(self.joined.database, self.namespace)
        name = f"{NAME}-{hold.shard.number}"
        while (version := await self.load(states, name, hold)) is None:
            await self.pause()
        while True:
            outcome = await self.write_once(states, name, hold, version)
            if outcome == "fenced":
                return self.refused("database", hold, outcome)
            version = outcome if isinstance(outcome, int) else version
            await self.pause()

    async def load(self, states: SqlState, name: str, hold: Hold) -> int | None:
        invoked = Clock.boot()
        try:
            found = await states.read(name, timeout=1.0)
        except PersistenceFailedError:
            return None
        version = 0 if found is None else found.version
        fact = {"resource": f"database:{hold.shard}", "fence": hold.fence, "version": version}
        self.recorder.note("load", asked=invoked, **fact)
        return version

    async def write_once(self, states: SqlState, name: str, hold: Hold, version: int) -> int | str:
        """Return the new version, `fenced`, or `again`: the same commit id then finds what went through."""
        with self.recorder.operation("commit", hold.commit("database")) as done:
            try:
                written = await states.write(
                    name,
                    hold.shard,
                    fence=hold.fence,
                    nonce=hold.nonce,
                    expected_version=version,
                    body=b"x",
                    schema_version=1,
                    commit_id=f"{hold.nonce}-{hold.fence}-{version}",
                    timeout=1.0,
                )
            except FencedError as error:
                done.fail(str(error))
                return "fenced"
            except PersistenceFailedError as error:
                if error.execution in SURELY_NOT:
                    done.fail(error.detail)
                return "again"
            done.ok({"version": written.version})
            self.written.database[str(hold.shard)] = hold.fence
            return written.version

    def refused(self, store: str, hold: Hold, word: str) -> None:
        self.recorder.note("refused", word=word, **hold.commit(store))
        emit("refused", store=store, shard=str(hold.shard), fence=hold.fence, word=word)

    async def pause(self) -> None:
        await anyio.sleep(random.uniform(0.5, 1.5) * self.options["pause"])

    async def pulse(self) -> None:
        """Say what was accepted since the last time, and what is owned."""
        since = Clock.boot()
        while True:
            await anyio.sleep(PULSE)
            written, self.written = self.written, Written()
            ownership = self.joined.ownership
            owned = (
                {} if ownership is None else {str(one.shard): one.fence for one in ownership.owned.values()}
            )
            emit("pulse", since=since, redis=written.redis, database=written.database, owned=owned)
            since = Clock.boot()

    async def obey(self) -> None:
        """Do what the parent says."""
        async for command in commands():
            if command["do"] == "health":
                report = await self.health()
                emit("health", ready=report.ready, reasons=report.reasons)
            elif command["do"] == "stall":
                emit("stalling")
                while not Path(command["until"]).exists():
                    time.sleep(0.01)  # the event loop stands still, and other threads do not


def record_grants(recorder: Recorder) -> None:
    """Let every grant leave a line before it is asked for and after it was installed."""
    original = RegisteredFences.establish

    async def establish(
        self: RegisteredFences, shards: Iterable[ShardId], *, timeout: float
    ) -> dict[ShardId, int]:
        asked = list(shards)
        with ExitStack() as stack:
            outcomes = {
                shard: stack.enter_context(recorder.operation("grant", {"shard": str(shard)}))
                for shard in asked
            }
            fences = await original(self, asked, timeout=timeout)
            for shard, fence in fences.items():
                nonce = self._keys.nonce
                outcomes[shard].ok({"fence": fence, "nonce": nonce})
                for store in ("redis", "database"):
                    recorder.note("install", **Hold(shard, fence, nonce).commit(store))
        return fences

    RegisteredFences.establish = establish  # type: ignore[method-assign]


def make_cluster(options: dict[str, Any]) -> FencedWriter:
    warnings.simplefilter("ignore", ShortLeaseWarning)
    settings = Settings(
        lease=LeaseSettings(ttl=timedelta(seconds=options["ttl"]), nodes=options["nodes"]),
        shards=ShardSettings(per_group=options["shards"], partitions=4),
        drain=DrainSettings(budget=timedelta(seconds=5)),
    )
    return FencedWriter(
        options["redis"],
        options["database"],
        namespace=options["namespace"],
        name=options["name"],
        entities=[TYPES[name] for name in options["serves"]],
        settings=settings,
    )


async def say_when_it_listens() -> None:
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        await anyio.sleep(0.005)
    emit("serving")


async def main(text: str) -> None:
    """Run until SIGTERM, or until the parent loses patience."""
    options = json.loads(text)
    with Recorder(options["history"], process=options["name"]) as recorder:
        record_grants(recorder)
        cluster = make_cluster(options)
        cluster.options, cluster.recorder, cluster.written = options, recorder, Written()
        async with anyio.create_task_group() as cluster.writers, cluster:
            emit("joined", runner_id=cluster.runner_id, nonce=cluster.joined.nonce)
            async with anyio.create_task_group() as background:
                background.start_soon(cluster.pulse)
                background.start_soon(cluster.obey)
                background.start_soon(say_when_it_listens)
                await cluster.run_forever()
                emit("drained")
                background.cancel_scope.cancel()
            cluster.writers.cancel_scope.cancel()
    emit("left")
