"""The FastAPI front end and its host as processes of their own, over real HTTP, while hosts come and go."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from redis_cluster_kit.embedded.redis_server import free_port
from redis_cluster_kit.testing import ChildProcess, until

from .http import Answer, get

ROOT = Path(__file__).parents[2]


class Service:
    """Programs of the shop that share stores; each has a port of its own."""

    def __init__(self, stack: AsyncExitStack, env: dict[str, str]) -> None:
        self._stack = stack
        self._env = env

    async def host(self) -> tuple[ChildProcess, str]:
        port = str(free_port())
        return await self._start("examples.web.host", PROBES_PORT=port), f"http://127.0.0.1:{port}"

    async def front(self) -> tuple[ChildProcess, str]:
        port = str(free_port())
        child = await self._start("uvicorn", "examples.web.front:app", UVICORN_PORT=port)
        return child, f"http://127.0.0.1:{port}"

    async def _start(self, *command: str, **env: str) -> ChildProcess:
        child = ChildProcess(*command, env={**self._env, **env}, pythonpath=[ROOT])
        return await self._stack.enter_async_context(child)


@pytest.fixture
def env(valkey: Any, sqlite_url: str, namespace: str) -> dict[str, str]:
    return {
        "SHOP_REDIS": valkey.url,
        "SHOP_DATABASE": sqlite_url,
        "SHOP_NAMESPACE": namespace,
        "RCK_SHARDS_PER_GROUP": "8",
        "RCK_ENTITIES_ASK_TIMEOUT": "2s",
    }


async def ready(url: str, shards: int) -> None:
    async def is_ready() -> bool:
        answer = await get(f"{url}/readyz")
        return answer.status == 200 and answer.json["shards"]["owned"] == shards

    await until(is_ready, timeout=60, what=f"{url} ready with {shards} shards")


async def visit(front: str, key: str) -> Answer:
    """Count a visit as a careful client does: again with the same key until it is answered."""

    async def answered() -> Answer | None:
        answer = await get(f"{front}/pages/home/visits", "POST", **{"idempotency-key": key})
        assert answer.status in (200, 503, 504), answer
        return answer if answer.status == 200 else None

    answer: Answer = await until(answered, timeout=60, what=f"visit {key} counted")
    return answer


async def test_hosts_come_and_go_behind_the_front_end(env: dict[str, str], valkey: Any) -> None:
    async with AsyncExitStack() as stack:
        service = Service(stack, env)
        first, first_probes = await service.host()
        await ready(first_probes, 8)
        web, front = await service.front()
        await ready(f"{front}/internal", 0)
        assert [(await visit(front, f"early-{n}")).body for n in range(3)] == ["1", "2", "3"]
        assert (await visit(front, "early-1")).body == "2", "its first answer again"

        second, second_probes = await service.host()
        await ready(first_probes, 4)
        await ready(second_probes, 4)
        first.terminate()
        for number in range(20):
            await visit(front, f"late-{number}")
        assert await first.wait(timeout=60) == 0
        await ready(second_probes, 8)
        assert (await get(f"{front}/pages/home/visits")).body == "23", "each key counted once"

        second.terminate()
        assert await second.wait(timeout=60) == 0
        unanswered = await get(f"{front}/pages/home/visits", "POST", **{"idempotency-key": "nobody"})
        assert (unanswered.status, unanswered.json) == (504, {"error": "SendTimeout"})
        assert (await get(f"{front}/internal/readyz")).status == 200, (
            "the message is safe, the front end well"
        )
        third, _ = await service.host()
        assert (await visit(front, "nobody")).body == "24", "sent twice, counted once"

        third.terminate()
        assert await third.wait(timeout=60) == 0
        web.terminate()
        assert await web.wait(timeout=60) in (0, -15), "uvicorn ends by the signal it was given"


async def test_what_the_front_end_refuses(env: dict[str, str], valkey: Any) -> None:
    async with AsyncExitStack() as stack:
        web, front = await Service(stack, env).front()
        await ready(f"{front}/internal", 0)
        assert (await get(f"{front}/pages/no%20blank/visits")).status == 422
        assert (
            await get(f"{front}/pages/home/visits", "POST", **{"idempotency-key": "k" * 129})
        ).status == 422
        assert (await get(f"{front}/internal/healthz")).body == "ok\n"
        metrics = (await get(f"{front}/internal/metrics")).body
        assert f'rck_runners{{namespace="{env["SHOP_NAMESPACE"]}"}} 0.0' in metrics, "it is no runner itself"
        web.terminate()
        await web.wait(timeout=60)


async def test_a_host_told_to_stop_while_it_joins_ends(env: dict[str, str], private_valkey: Any) -> None:
    """As the first process of a container, where a signal nobody handles is lost."""
    async with AsyncExitStack() as stack:
        private_valkey.pause()
        host, probes = await Service(stack, {**env, "SHOP_REDIS": private_valkey.url}).host()

        async def is_joining() -> bool:
            answer = await get(f"{probes}/readyz")
            return answer.status == 503 and "redis" in answer.json

        await until(is_joining, timeout=60, what="a host that waits for Redis")
        assert (await get(f"{probes}/healthz")).status == 200
        host.terminate()
        assert await host.wait(timeout=30) == 0
        private_valkey.resume()
