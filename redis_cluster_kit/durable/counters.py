"""What durable execution counts; plain numbers, so that counting costs nothing. Metrics read them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class DurableCounters:
    """Since this runner joined."""

    steps_run: int = 0
    """Steps whose function was run and whose result was recorded."""
    steps_replayed: int = 0
    """Steps whose result was there already."""
    steps_failed: int = 0
    """Steps whose function raised."""
    step_conflicts: int = 0
    """Durable calls that came with another input than the one recorded."""
    parks: int = 0
    """Turns that left memory to wait."""
    wakes: int = 0
    """Turns that were woken here."""
    deferreds_resolved: int = 0
    """Deferreds resolved through this runner."""
    deferreds_rescued: int = 0
    """Executions woken late, because whoever resolved their deferred did not come to it."""
    executions_aside: int = 0
    """Executions of singletons set aside."""
    executions_forgotten: int = 0
    """Executions whose journal was deleted."""
