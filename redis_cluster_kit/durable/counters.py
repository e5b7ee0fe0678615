"""What durable execution counts; plain numbers, so that counting costs nothing. Metrics read them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class DurableCounters:
    """Since this runner joined."""

    run: int = 0
    """Steps whose function was run and whose result was recorded."""
    replayed: int = 0
    """Steps whose result was there already."""
    failed: int = 0
    """Steps whose function raised."""
    conflicts: int = 0
    """Durable calls that came with another input than the one recorded."""
    parked: int = 0
    """Turns that left memory to wait."""
    woken: int = 0
    """Turns that were woken here."""
    resolved: int = 0
    """Deferreds resolved through this runner."""
    rescued: int = 0
    """Executions woken late, because whoever resolved their deferred did not come to it."""
    aside: int = 0
    """Executions of singletons set aside."""
    forgotten: int = 0
    """Executions whose journal was deleted."""
