"""Fleets on servers that a test may kill, and on the shared ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import Proxy

from .fleet import Fleet


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where histories go."""
    made = tmp_path / "history"
    made.mkdir()
    return made


@pytest.fixture
async def proxy(valkey: RedisServer) -> AsyncIterator[Proxy]:
    """A way to the shared Valkey that can be disturbed."""
    async with Proxy.to("127.0.0.1", valkey.port) as running:
        yield running


@pytest.fixture
async def fleet(
    valkey: RedisServer, proxy: Proxy, postgres_url: str, namespace: str, folder: Path
) -> AsyncIterator[Fleet]:
    """On the shared Valkey: pods may be killed, the server not. It ends before the proxy."""
    async with Fleet(valkey.url, postgres_url, namespace, folder) as made:
        yield made


@pytest.fixture
async def any_fleet(redis_server: Any, sqlite_url: str, namespace: str, folder: Path) -> AsyncIterator[Fleet]:
    """On each kind of server in turn."""
    async with Fleet(redis_server.url, sqlite_url, namespace, folder) as made:
        yield made


@pytest.fixture
def durable_valkey() -> Iterator[RedisServer]:
    """A server of this test's own that loses nothing when it is killed."""
    with RedisServer.start(append_only=True, fsync="always") as server:
        yield server
