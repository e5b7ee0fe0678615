"""What a failed Redis command means: our error, and whether the command may have run.

An error reply is classed by its first word; a lost connection by whether the command had been written.
"""

from __future__ import annotations

from typing import NamedTuple

import hiredis

from redis_cluster_kit.errors import Execution, PersistenceFailedError

# The server says these before it runs anything; they pass by themselves or after asking for the route.
_PASSING = frozenset(
    {"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "BUSY", "UNBLOCKED"}
)
# Refused before anything ran; trying the same again at once is pointless, later it may work.
_SHORT_OF_MEANS = frozenset({"OOM", "MISCONF", "NOREPLICAS", "NOSCRIPT"})
_STALE_ROUTE = frozenset({"MOVED", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "UNBLOCKED"})
_DEMOTED = frozenset({"READONLY", "MASTERDOWN", "UNBLOCKED"})
_FULL = "ERR max number of clients reached"


class ErrorReply(NamedTuple):
    """A classed error reply: its code, its text, and what it means for the command."""

    code: str
    text: str

    @property
    def passes(self) -> bool:
        """Whether the command surely did not run and may be sent again."""
        return (self.code in _PASSING or self.text.startswith(_FULL)) and not self._stopped_a_script

    @property
    def doubts_route(self) -> bool:
        """Whether another server may be the right one by now."""
        return self.code in _STALE_ROUTE

    @property
    def is_demoted(self) -> bool:
        """Whether the server is a replica by now: behind the same address there may be another one."""
        return self.code in _DEMOTED

    def to_error(self) -> PersistenceFailedError:
        """Return what the caller gets."""
        passing = self.passes or (self.code in _SHORT_OF_MEANS and not self._stopped_a_script)
        return PersistenceFailedError(
            store="redis",
            execution=Execution.NOT_EXECUTED if passing else self._outcome(),
            is_retryable=passing,
            detail=self.text,
        )

    @property
    def _stopped_a_script(self) -> bool:
        # Servers add "script: <sha>, on @user_script:<line>." to what a command inside one raised.
        return " script: " in self.text

    def _outcome(self) -> Execution:
        # A script that stopped at an error in its middle keeps what it had written before.
        return Execution.UNKNOWN if self._stopped_a_script else Execution.REFUSED


def classify(reply: hiredis.ReplyError) -> ErrorReply:
    """Class an error reply by its first word."""
    text = str(reply)
    return ErrorReply(text.partition(" ")[0], text)


def lost(execution: Execution, detail: str, cause: BaseException | None = None) -> PersistenceFailedError:
    """Return the error of a connection that failed before (`NOT_EXECUTED`) or after a command was written."""
    return PersistenceFailedError(store="redis", execution=execution, detail=detail, cause=cause)


def closed() -> PersistenceFailedError:
    """Return the error of what is asked of lanes that were closed."""
    return lost(Execution.NOT_EXECUTED, "these lanes are closed")


def doubtful(error: PersistenceFailedError) -> PersistenceFailedError:
    """Return the same failure of a command that may have run at an earlier attempt."""
    if error.execution is Execution.UNKNOWN:
        return error
    return PersistenceFailedError(
        store=error.store,
        execution=Execution.UNKNOWN,
        is_retryable=error.is_retryable,
        detail=f"after an attempt that may have run: {error.detail}",
        cause=error,
    )
