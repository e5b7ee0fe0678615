"""Judges over what happened: each takes rows, returns the invariants broken and how much it looked at.

I1 `commit_fences` `no_stale_commit` `one_owner` · I2 `exactly_once` · I3 `send_order` · I4 `duplicates` ·
I5 `fences_increase` · I6 `cron_ticks` · I7 `bound` · I8 `takeover_state` · I9 `recovery` · `linearizable`.
"""

from .fences import (
    Commit,
    Grant,
    Install,
    Load,
    commit_fences,
    fences_increase,
    no_stale_commit,
    takeover_state,
)
from .messages import (
    Effect,
    MailboxCount,
    Sent,
    Tick,
    bound,
    cron_ticks,
    duplicates,
    exactly_once,
    send_order,
)
from .owners import OwnershipEvent, Span, commit_spans, one_owner, ownership_spans, recovery
from .registers import SearchTooLargeError, linearizable
from .verdict import InvariantBrokenError, Verdict, Violation, together

__all__ = [
    "Commit",
    "Effect",
    "Grant",
    "Install",
    "InvariantBrokenError",
    "Load",
    "MailboxCount",
    "OwnershipEvent",
    "SearchTooLargeError",
    "Sent",
    "Span",
    "Tick",
    "Verdict",
    "Violation",
    "bound",
    "commit_fences",
    "commit_spans",
    "cron_ticks",
    "duplicates",
    "exactly_once",
    "fences_increase",
    "linearizable",
    "no_stale_commit",
    "one_owner",
    "ownership_spans",
    "recovery",
    "send_order",
    "takeover_state",
    "together",
]
