"""A real Prometheus scrapes the example, evaluates every alert and answers every line of the dashboard."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from redis_cluster_kit.embedded.redis_server import free_port
from redis_cluster_kit.testing import until
from tests.web.http import get

from .programs import PORT_OF, child_of
from .queries import METRICS_PATHS, PROMETHEUS, RULES, queries

SCRAPED = {"shop-host": METRICS_PATHS["probes"], "shop-web": METRICS_PATHS["http"]}
EMPTY = ("singleton_", "cron_")
"""The example has neither: these lines are answered, and empty."""


def configuration(ports: dict[str, int], folder: Path) -> Path:
    """scrape.yaml with the pods named instead of discovered, and every second."""
    config = yaml.safe_load((PROMETHEUS / "scrape.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    (scrape,) = config["scrape_configs"]
    del scrape["kubernetes_sd_configs"], scrape["relabel_configs"]
    config["scrape_configs"] = [
        {
            **scrape,
            "job_name": name,
            "scrape_interval": "1s",
            "metrics_path": SCRAPED[name],
            "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": {"instance": name}}],
        }
        for name, port in ports.items()
    ]
    shutil.copy(PROMETHEUS / "rules.yaml", folder)
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@asynccontextmanager
async def prometheus(config: Path) -> AsyncGenerator[Callable[[str], Any]]:
    """Run it, and yield how to ask its API."""
    binary = shutil.which("prometheus")
    assert binary is not None
    port = free_port()
    arguments = [
        f"--config.file={config}",
        f"--storage.tsdb.path={config.parent / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    process = await asyncio.create_subprocess_exec(binary, *arguments)

    async def ask(path: str) -> Any:
        answer = await get(f"http://127.0.0.1:{port}/api/v1/{path}")
        assert answer.status in (0, 200, 503), answer.body
        return json.loads(answer.body)["data"] if answer.status == 200 else None

    try:
        yield ask
    finally:
        process.kill()
        await process.wait()


@pytest.mark.skipif(
    shutil.which("prometheus") is None,
    reason="no prometheus on the PATH (Debian: apt-get install prometheus)",
)
async def test_every_line_is_drawn_and_every_alert_evaluated(
    valkey: Any, postgres_url: str, namespace: str, tmp_path: Path
) -> None:
    stores = {("shop-redis", "url"): valkey.url, ("shop-postgres", "url"): postgres_url}
    ports = {deployment: free_port() for deployment in PORT_OF}
    async with AsyncExitStack() as stack:
        for deployment, port in ports.items():
            env = {PORT_OF[deployment]: str(port), "SHOP_NAMESPACE": namespace}
            await stack.enter_async_context(child_of(deployment, stores, **env))
        ask = await stack.enter_async_context(prometheus(configuration(ports, tmp_path)))

        async def is_drawn(expression: str) -> bool:
            """Visits go on meanwhile: a rate needs a counter that moves."""
            await get(f"http://127.0.0.1:{ports['shop-web']}/pages/home/visits", "POST")
            found = await ask(f"query?query={quote(expression)}")
            return found is not None and (bool(found["result"]) or any(name in expression for name in EMPTY))

        alerts = {rule["alert"] for rule in RULES}
        lines = [expression for place, expression, _ in queries() if place not in alerts]
        assert len(lines) > 30
        for line in lines:
            chosen = line.replace("$namespace", namespace).replace("$instance", "shop-.+")
            await until(lambda line=chosen: is_drawn(line), timeout=60, what=f"an answer to {line}")

        async def verdicts() -> list[dict[str, Any]]:
            found = await ask("rules")
            rules = [rule for group in found["groups"] for rule in group["rules"]]
            return rules if all(rule["health"] != "unknown" for rule in rules) else []

        rules = await until(verdicts, timeout=60, what="every rule evaluated")
        assert {rule["name"] for rule in rules} == alerts
        assert {rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] != "ok"} == {}
        assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []
