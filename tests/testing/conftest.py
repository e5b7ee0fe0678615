"""Servers of this folder's own: its tests flush scripts and replicate, which shared ones must not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from redis_cluster_kit.embedded import RedisServer


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
