"""The metrics of singletons, as a scrape shows them."""

from __future__ import annotations

import anyio
import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from redis_cluster_kit import Registry, SingletonContext
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, quiet


class Progress(msgspec.Struct):
    seen: int = 0


async def test_what_a_scrape_shows(make_sqlite_cluster: MakeCluster, namespace: str) -> None:
    metrics, registry = CollectorRegistry(), Registry()
    runs: list[int] = []

    @registry.singleton("report", state=Progress)
    async def report(ctx: SingletonContext[Progress]) -> None:
        runs.append(1)
        if len(runs) == 1:
            raise ValueError("first")
        await ctx.update(seen=1)
        await ctx.update(seen=2)
        runs.append(1)
        await anyio.sleep_forever()

    with quiet():
        async with make_sqlite_cluster(include=[registry], metrics_registry=metrics) as cluster:
            await until(lambda: len(runs) == 3, what="it has saved twice")
            host = cluster.joined_runner().host
            assert host is not None
            host.singletons.counters["report"].errors["StateLoadFailed"] += 3
            labels = {"namespace": namespace, "singleton": "report"}
            kind = labels | {"type": "singleton"}
            assert metrics.get_sample_value("singleton_executions_total", kind) == 2
            assert metrics.get_sample_value("singleton_failures_total", kind) == 1
            assert metrics.get_sample_value("singleton_duration_seconds_count", kind) == 2
            assert metrics.get_sample_value("singleton_duration_seconds_bucket", kind | {"le": "+Inf"}) == 2
            last = metrics.get_sample_value("singleton_last_execution", kind)
            assert last is not None
            assert abs(last - cluster.joined_runner().clock.now()) < 60
            errors = labels | {"type": "StateLoadFailed"}
            assert metrics.get_sample_value("singleton_state_errors_total", errors) == 3
            assert metrics.get_sample_value("rck_singletons", {"namespace": namespace}) == 1
            assert b"singleton_duration_seconds" in generate_latest(metrics)
    assert metrics.get_sample_value("rck_singletons", {"namespace": namespace}) is None


async def test_without_singletons_there_are_no_metrics_of_any(make_sqlite_cluster: MakeCluster) -> None:
    metrics = CollectorRegistry()
    async with make_sqlite_cluster(metrics_registry=metrics):
        assert b"singleton_" not in generate_latest(metrics)
