"""Probes and metrics as a plain ASGI app: `/healthz`, `/readyz`, `/metrics`, to be mounted anywhere.

It needs no framework, and it may be served by another thread's event loop than the cluster's: that one then
answers even while the cluster's own is blocked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from prometheus_client.exposition import choose_encoder

from redis_cluster_kit.cluster import Cluster
from redis_cluster_kit.observe import HealthReport
from redis_cluster_kit.runner import Runner

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_ANSWER_WITHIN = 2.0
_JSON = b"application/json"


def probes(cluster: Cluster) -> App:
    """Return an ASGI app that tells of this cluster's runner.

    `/healthz` is 503 when the process should be restarted: its event loop has been blocked for
    `HealthSettings.loop_dead`. It asks no store. `/readyz` is 503, with the reasons, when no traffic should
    come; so it is before joining and after leaving. `/metrics` is the cluster's Prometheus registry.
    """
    return _Probes(cluster)


class _Probes:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._answers = {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._metrics}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _follow_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        elif scope["type"] == "http":
            status, kind, body = await self._answer(scope)
            headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
            headers.append((b"cache-control", b"no-store"))
            await send({"type": "http.response.start", "status": status, "headers": headers})
            content = b"" if scope["method"] == "HEAD" else body
            await send({"type": "http.response.body", "body": content})

    async def _answer(self, scope: Scope) -> tuple[int, bytes, bytes]:
        # Where it is mounted, `path` begins with `root_path`, or it does not: servers differ.
        path: str = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/")
        answer = self._answers.get(path)
        if answer is None:
            return _text(404, "here are /healthz, /readyz and /metrics")
        if scope["method"] not in ("GET", "HEAD"):
            return _text(405, "GET or HEAD")
        return await answer(scope)

    async def _healthz(self, _: Scope) -> tuple[int, bytes, bytes]:
        runner = self._runner()
        if runner is None or runner.watchdog.is_alive:
            return _text(200, "ok")
        return _text(503, runner.watchdog.trouble)

    async def _readyz(self, _: Scope) -> tuple[int, bytes, bytes]:
        report = await self._report()
        if isinstance(report, str):
            return 503, _JSON, msgspec.json.encode({"ready": False, "reasons": [report]})
        return 200 if report.ready else 503, _JSON, msgspec.json.encode(report)

    async def _metrics(self, scope: Scope) -> tuple[int, bytes, bytes]:
        accept = b",".join(value for name, value in scope["headers"] if name == b"accept").decode("latin-1")
        encode, kind = choose_encoder(accept)
        # In a thread: a registry with many metrics would block the loop.
        body = await anyio.to_thread.run_sync(encode, self._cluster.metrics_registry)
        return 200, kind.encode(), body

    def _runner(self) -> Runner | None:
        try:
            return self._cluster.joined_runner()
        except RuntimeError:
            return None

    async def _report(self) -> HealthReport | str:
        """The runner's health, asked on its own loop; text if there is none."""
        runner = self._runner()
        loop = None if runner is None else runner.watchdog.loop
        if runner is None or loop is None:
            return "the cluster is not joined"
        with anyio.move_on_after(_ANSWER_WITHIN):
            if loop is asyncio.get_running_loop():
                return await runner.health()
            if runner.watchdog.is_blocked:
                return runner.watchdog.trouble
            return await _on(loop, runner.health())
        return runner.watchdog.trouble or f"no answer within {_ANSWER_WITHIN:g} s"


async def _on(
    loop: asyncio.AbstractEventLoop, health: Coroutine[Any, Any, HealthReport]
) -> HealthReport | str:
    try:
        asked = asyncio.run_coroutine_threadsafe(health, loop)
    except RuntimeError:  # closed a moment ago
        health.close()
        return "the cluster is not joined"
    return await asyncio.wrap_future(asked)


def _text(status: int, text: str) -> tuple[int, bytes, bytes]:
    return status, b"text/plain; charset=utf-8", text.encode() + b"\n"


async def _follow_lifespan(receive: Receive, send: Send) -> None:
    """Nothing begins or ends here, but a server that serves only this app waits for the answers."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
