"""Probes: what they answer in each state of a runner, and what they do not depend on."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import pytest
import uvicorn
from prometheus_client import CollectorRegistry

from redis_cluster_kit import (
    Cluster,
    DrainSettings,
    Entity,
    HealthSettings,
    LeaseSettings,
    Settings,
    ShardSettings,
    rpc,
)
from redis_cluster_kit.asgi import probes
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import until

from .http import Answer, get, get_now

MakeCluster = Callable[..., Cluster]


class Account(Entity[None], name="account"):
    @rpc
    async def ping(self) -> str:
        return "pong"


@pytest.fixture
def make(sqlite_url: str, namespace: str) -> MakeCluster:
    def make(url: str, **groups: Any) -> Cluster:
        groups.setdefault("shards", ShardSettings(per_group=4))
        groups.setdefault("lease", LeaseSettings(ttl=timedelta(seconds=3)))
        return Cluster(
            url,
            sqlite_url,
            namespace=namespace,
            entities=[Account],
            settings=Settings(**groups),
            metrics_registry=CollectorRegistry(),
        )

    return make


@contextmanager
def served(cluster: Cluster) -> Iterator[str]:
    """Serve the probes on a thread and an event loop of their own."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(probes(cluster), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


async def call(app: Any, path: str, method: str = "GET", **scope: Any) -> Answer:
    """Ask the app as a server does."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "http", "path": path, "method": method, "headers": [], **scope}, None, send)
    begun, body = sent
    headers = dict(begun["headers"])
    assert headers[b"cache-control"] == b"no-store"
    assert method == "HEAD" or int(headers[b"content-length"]) == len(body["body"])
    return Answer(begun["status"], headers[b"content-type"].decode(), body["body"].decode())


async def is_ready(app: Any) -> bool:
    return (await call(app, "/readyz")).status == 200


async def is_ok(url: str) -> bool:
    return (await get(f"{url}/healthz")).status == 200


async def test_before_joining_while_a_member_and_after_leaving(
    make: MakeCluster, valkey: RedisServer
) -> None:
    cluster = make(valkey.url)
    app = probes(cluster)
    for _ in range(2):
        before = await call(app, "/readyz")
        assert (before.status, before.kind) == (503, "application/json")
        assert before.json == {"ready": False, "reasons": ["the cluster is not joined"]}
        assert (await call(app, "/healthz")).status == 200, "nobody restarts a process for not having joined"
        assert (await call(app, "/metrics")).status == 200
        async with cluster:
            await until(lambda: is_ready(app), what="ready")
            assert (await call(app, "/readyz")).json["runner_id"] == cluster.runner_id
            cluster.begin_drain()
            draining = await call(app, "/readyz")
            assert draining.status == 503
            assert "draining" in draining.json["reasons"]
            assert (await call(app, "/healthz")).status == 200


async def test_a_runner_that_only_sends_is_not_ready_while_it_drains(
    make: MakeCluster, valkey: RedisServer
) -> None:
    cluster = make(valkey.url)
    cluster._hosting = False
    app = probes(cluster)
    async with cluster:
        assert await is_ready(app)
        cluster.begin_drain()
        assert (await call(app, "/readyz")).json["reasons"] == ["draining"]


@pytest.mark.parametrize("hosting", [True, False])
async def test_it_is_not_ready_while_it_joins_and_leaves(
    make: MakeCluster, valkey: RedisServer, hosting: bool
) -> None:
    seen: list[Answer] = []
    cluster = make(valkey.url)
    cluster._hosting = hosting
    app = probes(cluster)

    async def look(_: Cluster) -> AsyncIterator[None]:
        seen.append(await call(app, "/readyz"))
        yield
        seen.append(await call(app, "/readyz"))

    cluster._lifespan = asynccontextmanager(look)
    async with cluster:
        await until(lambda: is_ready(app), what="ready")
    assert [answer.status for answer in seen] == [503, 503]
    known = "the shards of this runner are not known yet" if hosting else "joining or leaving"
    assert known in seen[0].json["reasons"]


async def test_liveness_never_depends_on_redis(make: MakeCluster, private_valkey: RedisServer) -> None:
    cluster = make(private_valkey.url, drain=DrainSettings(budget=timedelta(milliseconds=100)))
    app = probes(cluster)
    async with cluster:
        await until(lambda: is_ready(app), what="ready")
        private_valkey.kill()
        assert not private_valkey.alive

        async def says_so() -> bool:
            answer = await call(app, "/readyz")
            return answer.status == 503 and not answer.json["redis"]["ok"]

        await until(says_so, what="redis among the reasons")
        assert (await call(app, "/healthz")).status == 200
        began = time.monotonic()
        assert (await call(app, "/metrics")).status == 200
        assert time.monotonic() - began < 1.0


async def test_a_blocked_loop_is_seen_from_another_thread(make: MakeCluster, valkey: RedisServer) -> None:
    health = HealthSettings(
        loop_stall=timedelta(seconds=0.5), loop_dead=timedelta(seconds=1), stall_memory=timedelta(seconds=1)
    )
    cluster = make(valkey.url, health=health, lease=LeaseSettings(ttl=timedelta(seconds=20)))
    app = probes(cluster)
    async with cluster:
        await until(lambda: is_ready(app), what="ready")
        with served(cluster) as url:
            await until(lambda: is_ok(url), what="the probes served")
            seen = {"/healthz": list[Answer](), "/readyz": list[Answer]()}
            over = time.monotonic() + 20
            while not all(any(one.status == 503 for one in answers) for answers in seen.values()):
                for path, answers in seen.items():  # blocks this loop, and with it the cluster's
                    answers.append(get_now(url + path))
                assert time.monotonic() < over, seen
            unready = next(one for one in seen["/readyz"] if one.status == 503)
            assert "the event loop has been blocked for" in unready.json["reasons"][0]
            assert (await call(app, "/readyz")).status == 503, "it is remembered"
            assert "the event loop was blocked for" in (await call(app, "/readyz")).json["reasons"][0]
            assert (await get(f"{url}/healthz")).status == 200, "a loop that turns again needs no restart"
            await until(lambda: is_ready(app), what="ready again", timeout=20)


async def test_what_it_does_not_serve(make: MakeCluster, valkey: RedisServer) -> None:
    app = probes(make(valkey.url))
    assert (await call(app, "/")).status == 404
    assert (await call(app, "/healthz", "POST")).status == 405
    assert (await call(app, "/healthz", "HEAD")) == Answer(200, "text/plain; charset=utf-8", "")
    assert (await call(app, "/healthz/")).status == 200
    assert (await call(app, "/ops/healthz", root_path="/ops")).status == 200
    assert (await call(app, "/healthz", root_path="/ops")).status == 200
    openmetrics = await call(app, "/metrics", headers=[(b"accept", b"application/openmetrics-text")])
    assert openmetrics.kind.startswith("application/openmetrics-text")


async def test_it_may_be_a_server_s_only_app(make: MakeCluster, valkey: RedisServer) -> None:
    app = probes(make(valkey.url))
    asked = iter(["lifespan.startup", "lifespan.shutdown"])
    sent: list[str] = []

    async def receive() -> Any:
        return {"type": next(asked)}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    await app({"type": "websocket"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]
