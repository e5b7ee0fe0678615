"""What a failed Redis command means: our error, and whether the command may have run.

An error reply is classed by its first word; a lost connection by whether the command had been written.
"""

from __future__ import annotations

from typing import NamedTuple

import hiredis

from redis_cluster_kit.errors import Execution, PersistenceFailedError

# The server says these before it runs anything; they pass by themselves or after asking for the route.
_PASSING = frozenset({"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "BUSY"})
# Refused before anything ran; trying the same again at once is pointless, later it may work.
_SHORT_OF_MEANS = frozenset({"OOM", "MISCONF", "NOREPLICAS", "NOSCRIPT"})
_STALE_ROUTE = frozenset({"MOVED", "READONLY", "CLUSTERDOWN", "MASTERDOWN"})


class ErrorReply(NamedTuple):
    """A classed error reply: its code, its text, and what it means for the command."""

    code: str
    text: str

    @property
    def passes(self) -> bool:
        """Whether the command surely did not run and may be sent again."""
        return self.code in _PASSING

    @property
    def doubts_route(self) -> bool:
        """Whether another server may be the right one by now."""
        return self.code in _STALE_ROUTE

    def to_error(self) -> PersistenceFailedError:
        """Return what the caller gets."""
        passing = self.passes or self.code in _SHORT_OF_MEANS
        return PersistenceFailedError(
            store="redis",
            execution=Execution.NOT_EXECUTED if passing else self._outcome(),
            is_retryable=passing,
            detail=self.text,
        )

    def _outcome(self) -> Execution:
        # A script that stopped at an error in its middle keeps what it had written before.
        return Execution.UNKNOWN if "script:" in self.text else Execution.REFUSED


def classify(reply: hiredis.ReplyError) -> ErrorReply:
    """Class an error reply by its first word."""
    text = str(reply)
    code = text.partition(" ")[0]
    # Servers wrap what stopped a script: "ERR … script: …" keeps the inner code in front since 7.0.
    return ErrorReply(code.lstrip("-"), text)


def lost(execution: Execution, detail: str, cause: BaseException | None = None) -> PersistenceFailedError:
    """Return the error of a connection that failed before (`NOT_EXECUTED`) or after a command was written."""
    return PersistenceFailedError(store="redis", execution=execution, detail=detail, cause=cause)
