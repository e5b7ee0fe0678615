"""What the manifests start is started: each container's command and variables, its probes, SIGTERM."""

from __future__ import annotations

from typing import Any

import pytest

from redis_cluster_kit.embedded.redis_server import free_port
from redis_cluster_kit.testing import until
from tests.web.http import get

from .manifests import container_of, pod_of
from .programs import PORT_OF, child_of
from .queries import METRICS_PATHS


@pytest.mark.parametrize("deployment", ["shop-host", "shop-web"])
async def test_it_starts_answers_its_probes_and_leaves_in_time(
    deployment: str, valkey: Any, postgres_url: str, namespace: str
) -> None:
    port = free_port()
    stores = {("shop-redis", "url"): valkey.url, ("shop-postgres", "url"): postgres_url}
    env = {PORT_OF[deployment]: str(port), "SHOP_NAMESPACE": namespace}
    container = container_of(deployment)
    (name,) = (one["name"] for one in container["ports"])

    async def probe(kind: str) -> int:
        return (await get(f"http://127.0.0.1:{port}{container[kind]['httpGet']['path']}")).status

    async with child_of(deployment, stores, **env) as child:

        async def is_ready() -> bool:
            return await probe("readinessProbe") == 200

        await until(is_ready, timeout=60, what=f"{deployment} ready")
        assert await probe("startupProbe") == await probe("livenessProbe") == 200
        metrics = await get(f"http://127.0.0.1:{port}{METRICS_PATHS[name]}")
        shards = 100 if deployment == "shop-host" else 0
        assert f'rck_shards{{namespace="{namespace}"}} {shards}.0' in metrics.body
        child.terminate()
        code = await child.wait(timeout=pod_of(deployment)["terminationGracePeriodSeconds"])
    assert code in (0, -15), "uvicorn ends by the signal it was given"
    assert valkey.call("KEYS", f"rck:{{{namespace}:*lease*") == [], "every shard was given back"
