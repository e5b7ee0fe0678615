"""The Starlette and the FastAPI example over real HTTP, served by uvicorn in a process of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from redis_cluster_kit.testing import ChildProcess, until

from .http import get

ROOT = Path(__file__).parents[2]
SERVE = Path(__file__).with_name("serve.py")


@pytest.mark.parametrize(
    ("module", "mounted"),
    [("with_starlette", "/internal"), ("with_fastapi", "")],
    ids=["starlette", "fastapi"],
)
async def test_an_example_serves_probes_and_leaves_on_sigterm(
    module: str, mounted: str, valkey: Any, sqlite_url: str, namespace: str
) -> None:
    env = {
        "SHOP_REDIS": valkey.url,
        "SHOP_DATABASE": sqlite_url,
        "SHOP_NAMESPACE": namespace,
        "RCK_SHARDS_PER_GROUP": "8",
    }
    child = ChildProcess(f"{SERVE}:serve", f"examples.web.{module}", env=env, pythonpath=[ROOT])
    async with child:
        port = (await child.wait_for("serving", timeout=60))["port"]
        url = f"http://127.0.0.1:{port}"

        async def is_ready() -> bool:
            return (await get(f"{url}{mounted}/readyz")).status == 200

        await until(is_ready, timeout=60, what="the service to be ready")
        assert [(await get(f"{url}/visit/home")).body for _ in range(3)] == ["1", "2", "3"]
        assert (await get(f"{url}{mounted}/healthz")).body == "ok\n"
        ready = (await get(f"{url}{mounted}/readyz")).json
        assert (ready["ready"], ready["live"], ready["reasons"]) == (True, True, [])
        assert ready["shards"] == {"owned": 8, "missing": 0, "draining": False}
        metrics = await get(f"{url}{mounted}/metrics")
        assert metrics.kind.startswith("text/plain")
        assert f'rck_commits_total{{namespace="{namespace}"}} 3.0' in metrics.body
        assert (await get(f"{url}{mounted}/nothing")).status == 404
        child.terminate()
        await child.wait(timeout=60)
    assert valkey.call("KEYS", f"rck:{{{namespace}:*lease*") == [], "it has handed its shards off"
