"""One store of each technology, for the suite that all of them pass."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from redis_cluster_kit.storage.key_value import (
    FileStore,
    KeyValueStore,
    MemoryStore,
    RedisStore,
    SqlStore,
    WriteThroughStore,
)

KINDS = ("memory", "file", "redis", "redis-cluster", "sqlite", "postgres", "write-through")


@pytest.fixture(params=KINDS)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, namespace: str
) -> AsyncIterator[KeyValueStore]:
    """Each kind of store in turn, empty."""
    async with AsyncExitStack() as stack:

        async def redis(fixture: str) -> KeyValueStore:
            server: Any = request.getfixturevalue(fixture)
            return await stack.enter_async_context(RedisStore.open(server.url, namespace=namespace))

        async def sql(fixture: str) -> KeyValueStore:
            url: str = request.getfixturevalue(fixture)
            return await stack.enter_async_context(SqlStore.open(url, namespace=namespace))

        match request.param:
            case "memory":
                yield MemoryStore()
            case "file":
                yield FileStore(tmp_path / "values")
            case "redis":
                yield await redis("valkey")
            case "redis-cluster":
                yield await redis("valkey_cluster")
            case "write-through":
                yield WriteThroughStore(await redis("valkey"), await sql("sqlite_url"))
            case kind:
                yield await sql(f"{kind}_url")
