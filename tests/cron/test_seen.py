"""Crons as metrics, spans and the command line show them."""

from __future__ import annotations

import json
from typing import Any

import anyio.to_thread
import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from redis_cluster_kit import Registry, Tick
from redis_cluster_kit.cli.program import rck
from redis_cluster_kit.embedded import RedisServer
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, at_once, planned, quiet


async def test_metrics(make_cluster: MakeCluster, namespace: str) -> None:
    metrics, registry = CollectorRegistry(), Registry()
    attempts: list[int] = []

    @registry.cron("0 0 1 1 *", name="report", retry=at_once(2))
    async def report(tick: Tick) -> None:
        attempts.append(tick.attempt)
        if len(attempts) == 1:
            raise ValueError("first")

    with quiet("redis_cluster_kit.runtime.turns"):
        async with make_cluster(include=[registry], metrics_registry=metrics) as cluster:
            await until(lambda: planned(cluster), what="it is planned")
            await cluster.crons.trigger("report")
            labels = {"namespace": namespace, "cron": "report"}
            shown = metrics.get_sample_value
            await until(lambda: shown("cron_executions_total", labels) == 1, what="it has run")
            assert shown("cron_failures_total", labels) == 1
            assert shown("cron_duration_seconds_count", labels) == 1
            assert shown("cron_lateness_seconds_count", labels) == 1
            assert shown("cron_breaker_open_until", labels) == 0
            last = shown("cron_last_execution", labels)
            assert last is not None
            assert abs(last - cluster.joined_runner().clock.now()) < 60
            host = cluster.joined_runner().host
            assert host is not None
            assert host.crons is not None
            host.crons.counters["report"].skipped["overlap"] += 2
            assert shown("cron_skipped_total", labels | {"reason": "overlap"}) == 2


async def test_without_crons_there_are_no_metrics_of_any(make_cluster: MakeCluster) -> None:
    metrics = CollectorRegistry()
    async with make_cluster(metrics_registry=metrics):
        assert b"cron_" not in generate_latest(metrics)


async def test_a_tick_is_a_span(make_cluster: MakeCluster, exporter: InMemorySpanExporter) -> None:
    registry = Registry()

    @registry.cron("* * * * * *", name="spanned")
    async def spanned(tick: Tick) -> None: ...

    async with make_cluster(include=[registry]) as cluster:
        spans = await until(exporter.get_finished_spans, timeout=10, what="a span")
        assert {span.name for span in spans} == {"cron.spanned"}
        attributes = dict(spans[0].attributes or {})
        assert attributes["rck.runner_id"] == cluster.runner_id
        assert str(attributes["rck.entity_id"]).endswith("Z")
        assert str(attributes["rck.shard"]).startswith("default:")


async def test_the_command_line(
    make_cluster: MakeCluster, valkey: RedisServer, database_url: str, namespace: str
) -> None:
    ran: list[Tick] = []
    registry = Registry()

    @registry.cron("0 2 * * *", name="nightly", timezone="Europe/Berlin")
    async def nightly(tick: Tick) -> None:
        ran.append(tick)

    stores = {"RCK_REDIS": valkey.url, "RCK_DATABASE": database_url, "RCK_NAMESPACE": namespace}

    async def call(*words: str, code: int = 0) -> str:
        result: Any = await anyio.to_thread.run_sync(
            lambda: CliRunner().invoke(rck, ["cron", *words], env=stores)
        )
        assert result.exit_code == code, result.output
        return str(result.output)

    async with make_cluster(include=[registry]) as cluster:
        await until(lambda: planned(cluster), what="it is planned")
        (shown,) = json.loads(await call("list", "--json"))
        assert (shown["name"], shown["expression"], shown["timezone"]) == (
            "nightly",
            "0 2 * * *",
            "Europe/Berlin",
        )
        assert [instant[11:19] for instant in shown["next"]] in (["01:00:00"] * 3, ["00:00:00"] * 3)
        table = await call("list")
        assert "nightly" in table
        assert "Europe/Berlin" in table
        assert "add --yes" in await call("pause", "nightly", code=2)
        assert await call("pause", "nightly", "--yes") == "paused nightly\n"
        assert "paused" in await call("list")
        triggered = json.loads(await call("trigger", "nightly", "--yes", "--json"))
        await until(lambda: ran, what="its tick")
        assert ran[0].scheduled.isoformat() == triggered["triggered"]
        assert json.loads(await call("resume", "nightly", "--yes", "--json")) == {
            "cron": "nightly",
            "resumed": True,
        }
        assert "no cron 'nosuch'; known: nightly" in await call("trigger", "nosuch", "--yes", code=2)
        del stores["RCK_DATABASE"]
        assert "where is the database?" in await call("list", code=2)
