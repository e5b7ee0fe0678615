"""What is seen of durable steps from outside: a span for each, metrics, and who runs it."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from redis_cluster_kit import (
    DurableSettings,
    Registry,
    SingletonContext,
    StepConflictError,
    Tick,
    current,
)
from redis_cluster_kit.testing import until

from .conftest import MakeCluster, quick
from .flows import WORLD, Order


async def test_a_step_is_a_span_inside_its_turn_each_time_it_is_run(
    make_cluster: MakeCluster, exporter: InMemorySpanExporter
) -> None:
    async with make_cluster(Order) as cluster:
        assert await cluster.entity(Order, "a").pay_and_fail(1) == 2
    spans = exporter.get_finished_spans()
    turns = [span for span in spans if span.name == "entity.order.pay_and_fail"]
    (step,) = [span for span in spans if span.name == "step.charge"]
    assert len(turns) == 2
    assert step.parent is not None
    assert turns[0].context is not None
    assert step.parent.span_id == turns[0].context.span_id


async def test_steps_of_leaders_know_that_they_are(make_cluster: MakeCluster) -> None:
    seen: dict[str, tuple[bool | None, int | None]] = {}
    registry = Registry()

    async def look(what: str) -> None:
        here = current()
        seen[what] = here.is_leader, here.fence

    @registry.singleton("leader")
    async def leader(ctx: SingletonContext[None]) -> None:
        await ctx.step("look", look, "singleton")
        assert seen["singleton"] == (True, ctx.fence)
        await anyio.sleep_forever()

    @registry.cron("0 0 1 1 *", name="ticker")
    async def ticker(tick: Tick) -> None:
        await tick.step("look", look, "tick")
        assert seen["tick"] == (True, tick.fence)

    async with make_cluster(include=[registry]) as cluster:
        await cluster.crons.trigger("ticker")
        await until(lambda: len(seen) == 2, what="both have looked")
    assert [is_leader for is_leader, _ in seen.values()] == [True, True]


async def test_metrics_count_what_durable_calls_do(make_cluster: MakeCluster) -> None:
    scraped = CollectorRegistry()
    broken = Registry()

    @broken.singleton("broken")
    async def fail(ctx: SingletonContext[None]) -> None:
        await ctx.step("once", abs, 1)
        raise ValueError("broken")

    settings = quick(durable=DurableSettings(max_attempts=1, wake_poll=timedelta(milliseconds=200)))
    options = {"include": [broken], "settings": settings, "metrics_registry": scraped}
    async with make_cluster(Order, **options) as cluster:
        labels = {"namespace": cluster.namespace}

        def shown(name: str) -> float:
            return scraped.get_sample_value(f"rck_{name}", labels) or 0

        before = shown("steps_run_total")
        await cluster.entity(Order, "a").pay_and_fail(1)
        receipt = await cluster.entity(Order, "b").approve.send()
        await until(lambda: shown("parks_total") == 1, what="it waits")
        await until(lambda: shown("parked") == 1, what="it is counted")
        assert await cluster.complete(WORLD.tokens[0], True)
        assert await receipt.result(timeout=5)
        with pytest.raises(StepConflictError):
            await cluster.entity(Order, "c").pay_twice(1, 2)
        assert shown("steps_run_total") >= before + 3
        assert shown("steps_replayed_total") == 2
        assert shown("step_conflicts_total") == 1
        assert shown("deferreds_resolved_total") == 1
        await until(lambda: shown("executions_aside_total") >= 1, timeout=10, what="set aside")
        await until(lambda: shown("executions_set_aside") >= 1, timeout=10, what="it waits for a decision")
        await until(lambda: shown("executions_forgotten_total") >= 2, timeout=10, what="forgotten")
