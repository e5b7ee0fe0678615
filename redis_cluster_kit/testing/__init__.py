"""Faults on demand for services built on the kit: a proxy, child processes, histories, checkers, mutants.

Nothing here needs pytest. Every fault counts what it did and every checker what it examined: a test that
does not look at those numbers may be green for nothing.
"""

from .checkers import InvariantBrokenError, Verdict, Violation, together
from .child_events import commands, emit
from .history import History, Operation, Recorder, RegisterOperation, Seeds
from .mutants import Mutant, MutantNoLongerApplies, mutated_tree, patched_text
from .processes import ChildEvent, ChildExitedError, ChildProcess, NoEventError, SignalRecord
from .proxy import Loss, Proxy, Rule, command

__all__ = [
    "ChildEvent",
    "ChildExitedError",
    "ChildProcess",
    "History",
    "InvariantBrokenError",
    "Loss",
    "Mutant",
    "MutantNoLongerApplies",
    "NoEventError",
    "Operation",
    "Proxy",
    "Recorder",
    "RegisterOperation",
    "Rule",
    "Seeds",
    "SignalRecord",
    "Verdict",
    "Violation",
    "command",
    "commands",
    "emit",
    "mutated_tree",
    "patched_text",
    "together",
]
