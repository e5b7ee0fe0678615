"""What the other runners do in the storage tests: one command at a time, on a database each opens itself.

A child opens the database, says `ready`, waits for the word to go, acts, and says `done` with what it saw.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from redis_cluster_kit.clock import Clock
from redis_cluster_kit.errors import FencedError, KitError, PersistenceFailedError
from redis_cluster_kit.identity import ShardId
from redis_cluster_kit.settings import DatabaseSettings
from redis_cluster_kit.storage import (
    ClusterRecord,
    Database,
    FenceRegister,
    MachineIds,
    RecordStore,
    SqlState,
)
from redis_cluster_kit.testing import commands, emit

TIMEOUT = 10.0


async def serve() -> None:
    """Do what the parent says until it closes the pipe."""
    words = commands()
    async for word in words:
        url, action, ttl = word.pop("url"), word.pop("do"), timedelta(seconds=word.pop("ttl"))
        async with Database(url, DatabaseSettings(), ttl=ttl) as database:
            emit("ready")
            await anext(words)
            try:
                emit("done", result=await ACTIONS[action](database, **word))
            except KitError as error:
                emit("done", error=repr(error))


async def prepare(database: Database) -> None:
    await database.prepare(True, timeout=TIMEOUT)


async def grant(
    database: Database, namespace: str, nonce: str, shards: list[int], rounds: int, shuffle: bool
) -> list[dict[str, Any]]:
    """Grant all shards again and again, in the given order or in random ones, alone or together."""
    register, chance = FenceRegister(database, namespace), random.Random(nonce)
    seen: list[dict[str, Any]] = []
    for turn in range(rounds):
        chosen = chance.sample(shards, chance.randint(1, len(shards))) if shuffle else shards
        invoked = Clock.boot()
        granted = await register.grant("g", dict.fromkeys(chosen, 0), f"{nonce}-{turn}", timeout=TIMEOUT)
        completed = Clock.boot()
        assert granted.keys() == set(chosen)
        seen += [
            {
                "shard": f"g:{shard}",
                "fence": fence,
                "nonce": nonce,
                "invoked_at": invoked,
                "completed_at": completed,
            }
            for shard, fence in granted.items()
        ]
    return seen


async def write_first(database: Database, namespace: str, uuid: str) -> str:
    mine = ClusterRecord(database_uuid=uuid, layout_version=1, partitions=16, shard_counts={"default": 100})
    standing = await RecordStore(database, namespace).write_first(mine, timeout=TIMEOUT)
    return standing.database_uuid


async def add_group(database: Database, namespace: str, group: str, count: int) -> dict[str, int]:
    standing = await RecordStore(database, namespace).add_groups({group: count}, timeout=TIMEOUT)
    return standing.shard_counts


async def claim(database: Database, namespace: str, nonce: str, number: int, now_ms: int) -> list[int]:
    ids = MachineIds(database, namespace)
    lease = timedelta(seconds=60)
    return [
        (await ids.claim(f"{nonce}-{turn}", now_ms, lease, timeout=TIMEOUT)).machine_id
        for turn in range(number)
    ]


async def write_until(database: Database, namespace: str, name: str, fence: int, stop: str) -> int:
    """Write state without a pause of its own until the file `stop` is there; return how often."""
    states, version = SqlState(database, namespace), 0
    while not Path(stop).exists():
        written = await states.write(
            name,
            ShardId("g", 0),
            fence=fence,
            nonce="writers",
            expected_version=version,
            body=b"x" * 1000,
            schema_version=1,
            commit_id=f"{name}-{version}",
            timeout=TIMEOUT,
        )
        version = written.version
        if version == 3:
            emit("writing")
    return version


async def stop_inside_transaction(database: Database, namespace: str) -> None:
    """Lock a register row, then stand still: as a paused container, a debugger or a swapping host would."""

    def work(connection: Connection) -> None:
        connection.execute(
            text("UPDATE rck_fences SET nonce = 'stopped' WHERE namespace = :namespace"),
            {"namespace": namespace},
        )
        emit("inside")
        # To this very thread: another one would take what is sent to the process, and this go on to commit.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    await database.transaction(work, timeout=TIMEOUT)


async def stale_first_write(database: Database, namespace: str) -> dict[str, list[dict[str, Any]]]:
    """Own a shard, lose it, then try to write a state nobody has written yet; the present owner writes after.

    Return what was installed and what was accepted, for `no_stale_commit`.
    """
    register, states = FenceRegister(database, namespace), SqlState(database, namespace)
    installs: list[dict[str, Any]] = []
    for nonce in ("stale", "present"):
        invoked = Clock.boot()
        fence = (await register.grant("g", {0: 0}, nonce, timeout=TIMEOUT))[0]
        installs.append(_row(fence, nonce, invoked))
    commits: list[dict[str, Any]] = []
    for owner in installs:
        invoked = Clock.boot()
        with contextlib.suppress(FencedError, PersistenceFailedError):
            written = await states.write(
                "report",
                ShardId("g", 0),
                fence=owner["fence"],
                nonce=owner["nonce"],
                expected_version=0,
                body=owner["nonce"].encode(),
                schema_version=1,
                commit_id=owner["nonce"],
                timeout=TIMEOUT,
            )
            commits.append(_row(owner["fence"], owner["nonce"], invoked) | {"version": written.version})
    return {"installs": installs, "commits": commits}


def _row(fence: int, nonce: str, invoked: float) -> dict[str, Any]:
    times = {"invoked_at": invoked, "completed_at": Clock.boot()}
    return {"resource": "report", "fence": fence, "nonce": nonce} | times


ACTIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    action.__name__: action
    for action in (
        prepare,
        grant,
        write_first,
        add_group,
        claim,
        write_until,
        stop_inside_transaction,
        stale_first_write,
    )
}
