"""Durable execution: runs of executions, their journals, deferreds, tokens; not who runs them, when."""

from .counters import DurableCounters
from .execution import Execution, Waits
from .journal_port import DeferredPort, JournalPort
from .parking import parked_in
from .patience import Patience
from .recording import KnownDeferreds, OpenAs, Recording
from .resolving import Resolver, Wake
from .tokens import DeferredTokens
from .waiting import Bell, MemoryWaits, ParkingWaits

__all__ = [
    "Bell",
    "DeferredPort",
    "DeferredTokens",
    "DurableCounters",
    "Execution",
    "JournalPort",
    "KnownDeferreds",
    "MemoryWaits",
    "OpenAs",
    "ParkingWaits",
    "Patience",
    "Recording",
    "Resolver",
    "Waits",
    "Wake",
    "parked_in",
]
