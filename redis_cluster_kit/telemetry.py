"""Trace context in and out of envelopes, where OpenTelemetry is installed; at no cost where it is not."""

from __future__ import annotations

import importlib.util
from typing import Any

_HAS_OTEL = importlib.util.find_spec("opentelemetry") is not None


def outgoing_trace(inherited: dict[str, str]) -> dict[str, str]:
    """Return the trace context to send: the present span's, else what came with the message being handled."""
    if not _HAS_OTEL:
        return inherited
    from opentelemetry import propagate

    carrier: dict[str, Any] = {}
    propagate.inject(carrier)
    return carrier or inherited
