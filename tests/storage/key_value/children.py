"""What other processes do with a store in these tests."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from redis_cluster_kit.storage.key_value import FileStore, KeyValueStore, RedisStore, SqlStore
from redis_cluster_kit.testing import commands, emit

Opened = AbstractAsyncContextManager[KeyValueStore]


def open_store(kind: str, where: str, namespace: str) -> Opened:
    """Open a store of its own on what all of them share."""
    if kind == "file":
        return nullcontext(FileStore(where, timeout=30.0))
    if kind == "redis":
        return RedisStore.open(where, namespace=namespace)
    return SqlStore.open(where, namespace=namespace, timeout=30.0)


async def serve() -> None:
    """Open a store, wait for the word to go, count up in it, say what was seen; until the pipe is closed."""
    words = commands()
    async for word in words:
        async with open_store(word["kind"], word["where"], word["namespace"]) as store:
            emit("ready")
            await anext(words)
            emit("done", **await count(store, word["rounds"]))


async def count(store: KeyValueStore, rounds: int) -> dict[str, Any]:
    """Count a shared number up; return the numbers made here, and how often somebody else was faster."""
    calls, made = 0, list[int]()

    def up(value: bytes | None) -> bytes:
        nonlocal calls
        calls += 1
        return str(int(value or b"0") + 1).encode()

    for _ in range(rounds):
        made.append(int(await store.modify("n", up) or b""))
    return {"made": made, "overtaken": calls - rounds}


POINTS = ("half written", "written", "on the disk", "replaced")


async def stop_while_writing(folder: str, point: str) -> None:
    """Begin to replace a value and stand still at `point`, to be killed there."""

    write, sync, fsyncs = os.write, os.fsync, 0

    def stand_still() -> None:
        os.write = write  # `emit` needs it whole
        emit("inside")
        threading.Event().wait()

    def half_write(opened: int, data: Any) -> int:
        if point == "half written":
            write(opened, data[: len(data) // 2])
            stand_still()
        return write(opened, data)

    def counted_sync(opened: int) -> None:
        nonlocal fsyncs
        fsyncs += 1
        if (point, fsyncs) in {("written", 1), ("replaced", 2)}:
            stand_still()
        sync(opened)
        if (point, fsyncs) == ("on the disk", 1):
            stand_still()

    os.write, os.fsync = half_write, counted_sync
    await FileStore(folder).set("a", b"new" * 100_000)


async def write_for_ever(folder: str) -> None:
    """Replace one value again and again, each time with one byte repeated."""
    store, turn = FileStore(folder, timeout=30.0), 0
    while True:
        turn += 1
        await store.set("a", bytes([turn % 256]) * 200_000)
        if turn == 2:
            emit("writing")
