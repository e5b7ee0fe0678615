"""Each run of a singleton's function is a span, and each round of one that loops."""

from __future__ import annotations

from datetime import timedelta

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from redis_cluster_kit import Registry, SingletonContext
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, quiet


async def test_a_run_is_a_span(make_sqlite_cluster: MakeCluster, exporter: InMemorySpanExporter) -> None:
    runs: list[str] = []
    registry = Registry()

    @registry.singleton("traced")
    async def traced(ctx: SingletonContext[None]) -> None:
        runs.append(ctx.name)
        if len(runs) == 1:
            raise ValueError("first")

    def found() -> list[object]:
        return [span for span in exporter.get_finished_spans() if span.name == "singleton.traced"]

    with quiet():
        async with make_sqlite_cluster(include=[registry]) as cluster:
            await until(lambda: len(found()) == 2, what="two runs")
            first, second = (one for one in exporter.get_finished_spans() if one.name == "singleton.traced")
            assert first.status.status_code is StatusCode.ERROR
            assert second.status.status_code is StatusCode.UNSET
            assert second.attributes is not None
            assert second.attributes["rck.runner_id"] == cluster.runner_id
            assert str(second.attributes["rck.shard"]).startswith("default:")


async def test_each_round_is_a_span_of_its_own(
    make_sqlite_cluster: MakeCluster, exporter: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    """A loop never returns: without that its run would be one endless span, and one trace for ever."""
    rounds: list[trace.SpanContext] = []
    registry = Registry()

    @registry.singleton("looping")
    async def looping(ctx: SingletonContext[None]) -> None:
        async for _ in ctx.every(timedelta(milliseconds=10)):
            rounds.append(trace.get_current_span().get_span_context())
            if len(rounds) == 3:
                raise ValueError("the third")

    def found() -> list[ReadableSpan]:
        return [span for span in exporter.get_finished_spans() if span.name == "singleton.looping.round"]

    with quiet():
        async with make_sqlite_cluster(include=[registry]) as cluster:
            await until(lambda: len(found()) >= 5, what="five rounds")
            spans = found()[:5]
            assert [span.context for span in spans] == rounds[:5]
            assert len({span.context.trace_id for span in spans if span.context}) == 5
            failed = [span.status.status_code is StatusCode.ERROR for span in spans]
            assert failed == [False, False, True, False, False]
            assert all((span.attributes or {})["rck.runner_id"] == cluster.runner_id for span in spans)
    assert "Failed to detach" not in caplog.text
