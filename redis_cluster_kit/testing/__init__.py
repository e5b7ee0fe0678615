"""Faults on demand for services built on the kit: a proxy, child processes, histories, checkers, mutants.

Nothing here needs pytest. Every fault counts what it did and every checker what it examined: a test that
does not look at those numbers may be green for nothing.
"""

from .checkers import InvariantBrokenError, Verdict, Violation, together
from .child_events import commands, emit
from .history import History, Operation, Recorder, RegisterOperation
from .instance import (
    EntityUnderTest,
    Sent,
    assert_nothing_sent,
    assert_sent,
    instance,
    messages_sent,
)
from .mutants import Mutant, MutantNoLongerApplies, mutated_tree, patched_text
from .pods import Pods, PodsClock, local_cluster
from .postgres_pairing import statement
from .processes import ChildEvent, ChildExitedError, ChildProcess, NoEventError, SignalRecord
from .proxy import Proxy
from .proxy_rules import FaultNeverFiredError, Loss, Rule
from .resp_pairing import command
from .seeds import Seeds
from .waiting import FactNeverCameError, until

__all__ = [
    "ChildEvent",
    "ChildExitedError",
    "ChildProcess",
    "EntityUnderTest",
    "FactNeverCameError",
    "FaultNeverFiredError",
    "History",
    "InvariantBrokenError",
    "Loss",
    "Mutant",
    "MutantNoLongerApplies",
    "NoEventError",
    "Operation",
    "Pods",
    "PodsClock",
    "Proxy",
    "Recorder",
    "RegisterOperation",
    "Rule",
    "Seeds",
    "Sent",
    "SignalRecord",
    "Verdict",
    "Violation",
    "assert_nothing_sent",
    "assert_sent",
    "command",
    "commands",
    "emit",
    "instance",
    "local_cluster",
    "messages_sent",
    "mutated_tree",
    "patched_text",
    "statement",
    "together",
    "until",
]
