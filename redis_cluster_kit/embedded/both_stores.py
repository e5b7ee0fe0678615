"""The stores of `Cluster.embedded()`: a Valkey and an SQLite file of its own, in a folder if one is given."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from .redis_server import RedisServer


@asynccontextmanager
async def both_stores(folder: Path | None) -> AsyncGenerator[tuple[str, str]]:
    """Yield the URLs of both; what is kept in `folder` is found again, without one nothing is kept."""
    with tempfile.TemporaryDirectory(prefix="rck-") as temporary:
        place = folder or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        server = await anyio.to_thread.run_sync(
            lambda: RedisServer.start(folder=folder, append_only=folder is not None, fsync="everysec")
        )
        try:
            yield server.url, f"sqlite+aiosqlite:///{place / 'cluster.db'}"
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(server.stop)
