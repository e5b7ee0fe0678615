"""Spans: who is whose parent, across pods too, what they say, and that they can be free."""

from __future__ import annotations

import subprocess
import sys
import timeit
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, TraceFlags

from redis_cluster_kit import Entity, EntityError, Retry, rpc
from redis_cluster_kit.calling import client
from redis_cluster_kit.entity import current_turn
from redis_cluster_kit.runtime import turns
from redis_cluster_kit.telemetry import TRACING
from redis_cluster_kit.testing import Pods, local_cluster, until


class Refused(EntityError, code="refused"):
    pass


class Count(msgspec.Struct):
    value: int = 0


class Account(Entity[Count], name="account", retry=Retry(max_attempts=2)):
    @rpc
    async def add(self) -> int:
        self.state.value += 1
        return self.state.value

    @rpc
    async def forward(self) -> int:
        await self.cluster.entity(Account, f"{self.id}-told").add.send()
        return await self.cluster.entity(Account, f"{self.id}-asked").add()

    @rpc
    async def trace_parent(self) -> str:
        turn = current_turn()
        assert turn is not None
        return turn.trace.get("traceparent", "")

    @rpc
    async def trace_parent_of_another(self) -> str:
        return await self.cluster.entity(Account, f"{self.id}-asked").trace_parent()

    @rpc
    async def fail(self) -> None:
        raise ZeroDivisionError("always")

    @rpc(raises=[Refused])
    async def refuse(self) -> None:
        raise Refused


@pytest.fixture(scope="module")
async def pods() -> AsyncIterator[Pods]:
    async with local_cluster(pods=2, entities=[Account]) as pods:
        yield pods


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


async def spans(exporter: InMemorySpanExporter, name: str, number: int) -> list[ReadableSpan]:
    return await until(
        lambda: found if len(found := named(exporter, name)) >= number else None,
        what=f"{number} spans {name}",
    )


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


async def test_a_call_and_its_turn_on_another_pod(pods: Pods, exporter: InMemorySpanExporter) -> None:
    name = next(str(n) for n in range(1000) if pods[1].is_local(Account, str(n)))
    with TRACING.tracer.start_as_current_span("request") as request:
        await pods[0].entity(Account, name).add()
    (sent,), (handled,) = named(exporter, "cluster.send"), named(exporter, "entity.account.add")
    assert parent_of(sent) == request.get_span_context().span_id
    assert parent_of(handled) == id_of(sent)
    assert handled.parent is not None
    assert handled.parent.is_remote
    shard = str(pods[0].shard_of(Account, name))
    about = {"rck.shard": shard, "rck.entity_type": "account", "rck.entity_id": name}
    assert sent.attributes == about | {"rck.runner_id": pods[0].runner_id, "rck.rpc": "add"}
    assert handled.attributes is not None
    assert dict(handled.attributes) | about | {"rck.runner_id": pods[1].runner_id, "rck.attempt": 1} == dict(
        handled.attributes
    )
    assert handled.attributes["rck.message_id"]


async def test_what_a_turn_sends_belongs_to_it(pods: Pods, exporter: InMemorySpanExporter) -> None:
    await pods[0].entity(Account, "chain").forward()
    (outer,) = named(exporter, "entity.account.forward")
    inner = await spans(exporter, "entity.account.add", 2)
    sends = {id_of(span): span for span in named(exporter, "cluster.send")}
    assert {parent_of(sends[parent_of(span) or 0]) for span in inner} == {id_of(outer)}
    assert len({span.context.trace_id for span in inner if span.context is not None}) == 1


async def test_a_message_nobody_traced_has_no_parent(
    pods: Pods, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was current where the runner was entered, or an entity came into memory, has not caused it."""
    with TRACING.tracer.start_as_current_span("first"):
        await pods[0].entity(Account, "roots").add()
        monkeypatch.setattr(client, "outgoing_trace", lambda inherited: inherited)
        await pods[0].entity(Account, "roots").add()
    first, second = named(exporter, "entity.account.add")
    assert (parent_of(first) is None, parent_of(second) is None) == (False, True)


async def test_a_broadcast(pods: Pods, exporter: InMemorySpanExporter) -> None:
    for name in ("b1", "b2", "b3"):
        await pods[0].entity(Account, name).add()
    exporter.clear()
    taken = await pods[1].broadcast(Account.add)
    assert taken >= 3
    handled = await spans(exporter, "entity.account.add", taken)
    (sent,) = named(exporter, "cluster.broadcast")
    assert {parent_of(span) for span in handled} == {id_of(sent)}
    assert sent.attributes == {
        "rck.runner_id": pods[1].runner_id,
        "rck.entity_type": "account",
        "rck.rpc": "add",
    }


async def test_every_attempt_is_a_span_and_says_how_it_failed(
    pods: Pods, exporter: InMemorySpanExporter
) -> None:
    with pytest.raises(Exception, match="ZeroDivisionError"):
        await pods[0].entity(Account, "failing").fail()
    attempts = named(exporter, "entity.account.fail")
    assert [span.attributes and span.attributes["rck.attempt"] for span in attempts] == [1, 2]
    assert {span.status.status_code for span in attempts} == {StatusCode.ERROR}
    assert {event.name for span in attempts for event in span.events} == {"exception"}
    assert named(exporter, "cluster.send")[0].status.status_code is StatusCode.ERROR
    with pytest.raises(Refused):
        await pods[0].entity(Account, "failing").refuse()
    assert named(exporter, "entity.account.refuse")[0].status.status_code is StatusCode.UNSET


async def test_without_a_provider_the_trace_still_goes_through(pods: Pods) -> None:
    """Installed, and nobody has set it up: no span is recorded, and none is in the way."""
    assert TRACING.tracer is not None
    plain = pods[0].entity(Account, "plain")
    context = SpanContext(0x1234, 0x5678, is_remote=True, trace_flags=TraceFlags(1))
    with trace.use_span(NonRecordingSpan(context)):
        seen = await plain.trace_parent(), await plain.trace_parent_of_another()
    assert seen == ("00-00000000000000000000000000001234-0000000000005678-01",) * 2
    assert (await plain.trace_parent(), await plain.trace_parent_of_another()) == ("", "")


async def test_where_it_is_not_installed_one_attribute_is_looked_at(
    pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0

    class Missing:
        @property
        def tracer(self) -> None:
            nonlocal looked
            looked += 1

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"{name} was used")

    absent = Missing()
    monkeypatch.setattr(TRACING, "tracer", None)  # for the trace context
    monkeypatch.setattr(client, "TRACING", absent)
    monkeypatch.setattr(turns, "TRACING", absent)
    await pods[0].entity(Account, "none").add()
    assert looked == 2, "one look for the call, one for its turn"
    seconds = min(
        timeit.repeat("TRACING.tracer is None", globals={"TRACING": TRACING}, number=10_000, repeat=5)
    )
    assert seconds / 10_000 < 1e-6


NOT_INSTALLED = """
import sys
sys.modules["opentelemetry"] = None
import redis_cluster_kit
from redis_cluster_kit.calling import client
from redis_cluster_kit.runtime import turns
from redis_cluster_kit.telemetry import TRACING, outgoing_trace
assert TRACING.tracer is None
assert outgoing_trace({"traceparent": "x"}) == {"traceparent": "x"}
assert not [name for name in sys.modules if name.startswith("opentelemetry.")]
"""


def test_it_need_not_be_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOT_INSTALLED], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
