"""Turns what a driver raised into our errors, classed by what is known of the write. No I/O here.

How far an attempt got decides most: before a COMMIT, or a statement that commits itself, nothing is written.
"""

from __future__ import annotations

import enum
import sqlite3

from redis_cluster_kit.errors import Execution, PersistenceFailedError

STORE = "database"


class Progress(enum.Enum):
    """How far one attempt got, in order."""

    CONNECTING = "waiting for a connection"
    IN_TRANSACTION = "inside a transaction that was not yet committed"
    COMMITTING = "waiting for the answer to a write"


class Attempt:
    """One attempt's progress, moved forward by whoever runs it."""

    progress: Progress = Progress.CONNECTING
    is_abandoned: bool = False
    """Its caller has gone: nothing more is begun or committed for it."""


# The server answered these, so it took the statement back. Class 40 without 40003 ("completion unknown").
_ANSWERED = ("0A", "21", "22", "23", "25", "28", "2B", "3D", "3F", "40", "42", "44", "53", "54", "55", "P0")
_WORTH_RETRYING = ("08", "0A", "25", "40", "53", "55", "57", "58", "XX")
_STATEMENT_CANCELLED = "57014"
_COMPLETION_UNKNOWN = "40003"
_IDLE_IN_TRANSACTION = "25P03"

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def timed_out(attempt: Attempt, timeout: float, cause: BaseException) -> PersistenceFailedError:
    """Return the error for an attempt that used up its time."""
    return PersistenceFailedError(
        store=STORE,
        execution=_before_any_answer(attempt),
        detail=f"no answer within {timeout:g} s, {attempt.progress.value}",
        cause=cause,
    )


def locked(timeout: float, cause: BaseException) -> PersistenceFailedError:
    """Return the error for an SQLite file that other processes kept locked."""
    return PersistenceFailedError(
        store=STORE,
        execution=Execution.NOT_EXECUTED,
        detail=f"other processes held the SQLite file's lock for {timeout:g} s",
        cause=cause,
    )


def postgres_failure(error: BaseException, attempt: Attempt) -> PersistenceFailedError:
    """Class an error of asyncpg or SQLAlchemy by its SQLSTATE, or by the attempt's progress without one."""
    original = _original(error)
    sqlstate = str(getattr(original, "sqlstate", None) or "")
    return PersistenceFailedError(
        store=STORE,
        execution=_execution(sqlstate, attempt),
        is_retryable=not sqlstate or sqlstate.startswith(_WORTH_RETRYING),
        detail=_text(original, sqlstate),
        cause=error,
    )


def sqlite_failure(error: BaseException, attempt: Attempt) -> PersistenceFailedError:
    """Class an error of sqlite3; a locked file is not one, it is retried (`is_busy`)."""
    code = _sqlite_code(error)
    if attempt.progress is Progress.COMMITTING:
        execution = Execution.UNKNOWN
    elif attempt.progress is Progress.CONNECTING or code == sqlite3.SQLITE_CANTOPEN:
        execution = Execution.NOT_EXECUTED
    else:
        execution = Execution.REFUSED
    return PersistenceFailedError(
        store=STORE,
        execution=execution,
        is_retryable=code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL),
        detail=_text(_original(error), getattr(_original(error), "sqlite_errorname", "")),
        cause=error,
    )


def is_busy(error: BaseException) -> bool:
    """Return whether another connection held the SQLite file; the attempt then changed nothing."""
    return _sqlite_code(error) in _BUSY


def _execution(sqlstate: str, attempt: Attempt) -> Execution:
    if attempt.progress is Progress.CONNECTING:
        return Execution.NOT_EXECUTED
    is_answer = sqlstate == _STATEMENT_CANCELLED or sqlstate.startswith(_ANSWERED)
    if is_answer and sqlstate not in (_COMPLETION_UNKNOWN, _IDLE_IN_TRANSACTION):
        return Execution.REFUSED
    return _before_any_answer(attempt)


def _before_any_answer(attempt: Attempt) -> Execution:
    is_open = attempt.progress is Progress.COMMITTING
    return Execution.UNKNOWN if is_open else Execution.NOT_EXECUTED


def _original(error: BaseException) -> BaseException:
    """SQLAlchemy wraps the driver's error and appends the whole statement: too much for a message."""
    inner = getattr(error, "orig", None)
    return inner if isinstance(inner, BaseException) else error


def _sqlite_code(error: BaseException) -> int:
    # The low byte is the primary code, the rest says more: SQLITE_BUSY_SNAPSHOT is a SQLITE_BUSY too.
    return int(getattr(_original(error), "sqlite_errorcode", 0)) & 0xFF


def _text(error: BaseException, code: str) -> str:
    told = str(error).strip().splitlines()
    return " ".join(part for part in (type(error).__name__, code, told[0] if told else "") if part)
