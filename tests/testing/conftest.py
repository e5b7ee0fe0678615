"""Servers of this folder's own: its tests flush scripts and replicate, which shared ones must not."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import Proxy

Client: TypeAlias = Any


@dataclass(frozen=True)
class Server:
    host: str
    port: int
    unix: str


def _running(folder: str) -> Iterator[Server]:
    path = f"{folder}/s"
    extra = ("--unixsocket", path, "--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes")
    with RedisServer.start(extra=extra) as server:
        yield Server("127.0.0.1", server.port, path)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _running(str(tmp_path_factory.mktemp("v")))


@pytest.fixture(scope="session")
def second_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _running(str(tmp_path_factory.mktemp("v")))


@pytest.fixture
def key() -> str:
    return f"test:{uuid.uuid4().hex}"


@pytest.fixture
async def proxy(server: Any) -> AsyncIterator[Proxy]:
    async with Proxy.to(server.host, server.port) as running:
        yield running


@contextlib.asynccontextmanager
async def client_of(url: str, **options: Any) -> AsyncGenerator[Client]:
    settings: dict[str, Any] = {"retry": Retry(NoBackoff(), 0), "socket_timeout": 5.0, **options}
    client = redis.asyncio.Redis.from_url(url, **settings)
    try:
        yield client
    finally:
        await client.aclose()


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[Client]:
    async with client_of(proxy.url()) as through:
        yield through


@pytest.fixture
async def direct(server: Any, key: str) -> AsyncIterator[Client]:
    async with client_of(f"redis://{server.host}:{server.port}") as past_the_proxy:
        yield past_the_proxy
        await past_the_proxy.delete(key)


@pytest.fixture(name="client_of")
def _client_of() -> Callable[..., AbstractAsyncContextManager[Any]]:
    """A client without retries for a URL: `async with client_of(url, socket_timeout=0.1) as client:`."""
    return client_of
