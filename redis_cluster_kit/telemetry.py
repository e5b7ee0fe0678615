"""Spans and trace context where OpenTelemetry is installed; where it is not, one attribute is looked at.

`TRACING.tracer` is None then, and callers open no span. What a span is about is theirs to say.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from redis_cluster_kit.identity import ShardId


class OpenSpan:
    """A span that is current and ended by hand."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Any) -> None:
        from opentelemetry import context, trace

        self._span = span
        self._token = context.attach(trace.set_span_in_context(span))

    def end(self) -> None:
        """End it where it was begun: what was current before is so again."""
        from opentelemetry import context

        context.detach(self._token)
        self._span.end()

    def drop(self, error: BaseException | None) -> None:
        """End it from elsewhere, with what cut it short."""
        if isinstance(error, Exception):
            from opentelemetry.trace import Status, StatusCode

            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        self._span.end()


class Tracing:
    """The way to OpenTelemetry; a tracer of its API does nothing until the service sets a provider up."""

    __slots__ = ("_api", "_is_named", "tracer")

    def __init__(self) -> None:
        self.tracer: Any = None
        """None where OpenTelemetry is not installed: then there is nothing to open a span with."""
        if importlib.util.find_spec("opentelemetry") is not None:
            from opentelemetry import trace

            self.tracer = trace.get_tracer("redis_cluster_kit")
            self._api: Any = trace
            self._is_named = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ

    def sending(self, name: str, **about: Any) -> AbstractContextManager[object]:
        """Open the span of a call that leaves this code; its trace context goes into the envelope."""
        if self.is_idle:
            return nullcontext()
        from opentelemetry.trace import SpanKind

        opened: AbstractContextManager[object] = self.tracer.start_as_current_span(
            name, kind=SpanKind.PRODUCER, attributes=_attributes(about)
        )
        return opened

    def handling(
        self, name: str, trace: Mapping[str, str] | None = None, **about: Any
    ) -> AbstractContextManager[object]:
        """Open the span of a turn, a singleton or a tick; `trace` came with the message, and is its parent.

        Without one it has none: what happens to be current where the runner was entered has not caused it.
        """
        if self.is_idle:
            return nullcontext()
        from opentelemetry import propagate
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind

        opened: AbstractContextManager[object] = self.tracer.start_as_current_span(
            name,
            context=propagate.extract(trace or {}, context=Context()),
            kind=SpanKind.CONSUMER,
            attributes=_attributes(about),
        )
        return opened

    def begin(self, name: str, **about: Any) -> OpenSpan | None:
        """Open a span without a parent, to be ended by hand; None where nobody records any."""
        if self.is_idle:
            return None
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind

        return OpenSpan(
            self.tracer.start_span(
                name, context=Context(), kind=SpanKind.CONSUMER, attributes=_attributes(about)
            )
        )

    def inside(self, name: str) -> AbstractContextManager[object]:
        """Open the span of a part of what runs here: its parent is the present one."""
        if self.is_idle:
            return nullcontext()
        opened: AbstractContextManager[object] = self.tracer.start_as_current_span(name)
        return opened

    @property
    def is_idle(self) -> bool:
        """Whether nobody has set a provider up: no span is recorded, yet each would cost 10 µs."""
        if self.tracer is None:
            return True
        api = self._api
        if not isinstance(self.tracer, api.ProxyTracer):
            return False
        # What nobody has set is asked for with every message; the API would look into the environment first.
        if getattr(api, "_TRACER_PROVIDER", api) is None and not self._is_named:
            return True
        return isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


TRACING: Final = Tracing()


def outgoing_trace(inherited: dict[str, str]) -> dict[str, str]:
    """Return the trace context to send: the present span's, else what came with the message being handled."""
    if TRACING.tracer is None:
        return inherited
    from opentelemetry import propagate
    from opentelemetry.context import get_current

    if not get_current() and TRACING.is_idle:  # no span, no baggage: nothing to inject
        return inherited

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier or inherited


def _attributes(about: Mapping[str, Any]) -> dict[str, Any]:
    """`rck.shard`, `rck.runner_id`, … ; what is None is left out."""
    return {
        f"rck.{name}": str(value) if isinstance(value, ShardId) else value
        for name, value in about.items()
        if value is not None
    }
