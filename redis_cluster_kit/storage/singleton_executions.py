"""The executions of singletons: which one is open, those that failed too often, and putting one back.

The open one is `<state version>.<number>`: a state write opens the next by its version, in the one statement
that writes; whatever else ends an execution counts the number up. So nothing has to be deleted in time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection

from .database import Database
from .fenced import fenced
from .journal import Entry, Journal, Place
from .statements import Statement

T = TypeVar("T")

SINGLETON = "s:"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_ROUND = Statement("""
SELECT number, adopted, adopted_for FROM rck_singleton_round WHERE namespace = :namespace AND name = :name
""")

# Also the lock between a leader that opens an execution and whoever wants to put one back.
_LOCK = fenced("""
INSERT INTO rck_singleton_round (namespace, name, number)
SELECT :namespace, :name, 0 WHERE {held}
ON CONFLICT (namespace, name) DO UPDATE SET number = rck_singleton_round.number
RETURNING number, adopted, adopted_for
""")

_NEXT = fenced("""
UPDATE rck_singleton_round SET number = number + 1
WHERE namespace = :namespace AND name = :name AND number = :number AND {held}
RETURNING number
""")

_RESUMED = Statement("""
UPDATE rck_execution SET aside_at = NULL, failures = 0
WHERE namespace = :namespace AND subject = :subject AND execution = :execution AND aside_at IS NOT NULL
""")

_FAILED = fenced("""
UPDATE rck_execution SET failures = failures + 1, last_error = :last_error
WHERE namespace = :namespace AND subject = :subject AND execution = :execution AND {held}
RETURNING failures
""")

_ASIDE = fenced("""
UPDATE rck_execution SET aside_at = {clock_ms}
WHERE namespace = :namespace AND subject = :subject AND execution = :execution AND {held}
RETURNING execution
""")

_LIST = Statement("""
SELECT e.subject, e.execution, e.failures, e.last_error, e.opened_at, e.aside_at, r.adopted, (
    SELECT count(*) FROM rck_step AS s
    WHERE s.namespace = e.namespace AND s.subject = e.subject AND s.execution = e.execution
) AS steps
FROM rck_execution AS e
LEFT JOIN rck_singleton_round AS r
    ON r.namespace = e.namespace AND r.name = substr(e.subject, 3) AND r.adopted = e.execution
    AND r.adopted_for IS NULL
WHERE e.namespace = :namespace AND e.aside_at IS NOT NULL
ORDER BY e.aside_at
""")

_COUNT = Statement("""
SELECT count(*) FROM rck_execution WHERE namespace = :namespace AND aside_at IS NOT NULL
""")

_OPEN_NOW = Statement("""
SELECT coalesce((SELECT version FROM rck_singleton_state WHERE namespace = :namespace AND name = :name), 0)
    AS version, coalesce(r.number, 0) AS number, r.adopted, r.adopted_for
FROM (SELECT 1 AS one) AS always
LEFT JOIN rck_singleton_round AS r ON r.namespace = :namespace AND r.name = :name
""")

_IS_OPEN = Statement("""
SELECT 1 FROM rck_execution
WHERE namespace = :namespace AND subject = :subject AND execution = :execution
""")

_RECORDED = Statement("""
SELECT what, name, length(value) AS size, recorded_at FROM rck_step
WHERE namespace = :namespace AND subject = :subject AND execution = :execution
ORDER BY recorded_at, what, name
""")

_IS_ASIDE = Statement("""
SELECT 1 FROM rck_execution
WHERE namespace = :namespace AND subject = :subject AND execution = :execution AND aside_at IS NOT NULL
""")

# Writing the row locks it: a leader that opens an execution meanwhile waits, and then sees the adoption.
_TOUCH_ROUND = Statement("""
UPDATE rck_singleton_round SET number = number WHERE namespace = :namespace AND name = :name RETURNING number
""")

# For which one it goes on is found out when that would begin.
_ADOPT = Statement("""
UPDATE rck_singleton_round SET adopted = :adopted, adopted_for = NULL
WHERE namespace = :namespace AND name = :name
""")

_BEGIN_ADOPTED = Statement("""
UPDATE rck_singleton_round SET adopted_for = :execution WHERE namespace = :namespace AND name = :name
""")


class Round(NamedTuple):
    """Which execution of a singleton is open, beside the version of its state."""

    number: int = 0
    adopted: str | None = None
    """One that was put back, and goes on in the place of …"""
    adopted_for: str | None = None
    """… this one. None: of the next that begins."""

    def own(self, version: int) -> str:
        """Return the id it would have if none were put back."""
        return f"{version}.{self.number}"

    def execution(self, version: int) -> str:
        """Return the id of the open execution."""
        own = self.own(version)
        return self.adopted if self.adopted is not None and self.adopted_for == own else own


class PutBackError(Exception):
    """An execution that was set aside has been put back: what runs is to begin again, and go on with that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """An execution of a singleton that failed too often; it waits for somebody to decide."""

    id: str
    """What `retry` and `drop` take."""
    singleton: str
    failures: int
    error: str
    """What it raised last."""
    steps: int
    """How many of its durable calls are recorded."""
    is_put_back: bool
    """Whether it goes on as soon as the one that is open has ended."""
    opened_at: datetime
    set_aside_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One durable call in a journal."""

    what: str
    """`step` or `sleep`."""
    name: str
    size: int
    """Bytes of its result."""
    recorded_at: datetime


class SingletonExecutions:
    """The executions of one namespace's singletons."""

    def __init__(self, database: Database, journal: Journal, namespace: str) -> None:
        self._database = database
        self._journal = journal
        self._namespace = namespace

    # What leaders do

    async def round(self, name: str, *, timeout: float) -> Round:
        """Return which execution is open."""
        read = _ROUND.on(self._database.dialect)

        def work(connection: Connection) -> Round:
            row = connection.execute(read, self._named(name)).one_or_none()
            return Round() if row is None else Round(row.number, row.adopted, row.adopted_for)

        return await self._database.read(work, timeout=timeout)

    async def open(
        self, name: str, place: Place, version: int, *, keep_ms: int, timeout: float
    ) -> Sequence[Entry]:
        """Begin or resume the open execution; `PutBackError` if it is another one by now."""
        dialect = self._database.dialect
        lock, resumed = _LOCK.on(dialect), _RESUMED.on(dialect)
        parameters = _guard(place, self._namespace) | {"name": name}

        def work(connection: Connection) -> list[Entry] | PutBackError | None:
            row = connection.execute(lock, parameters).one_or_none()
            if row is None:
                return None
            now = Round(*row)
            if now.execution(version) != place.execution or self._adopts(connection, now, name, place):
                return PutBackError()
            found = self._journal.open_within(connection, place, keep_ms)
            if found is not None and row.adopted == place.execution:
                connection.execute(resumed, self._where(place.subject, place.execution))
            return found

        found: list[Entry] | PutBackError = await self._fenced(place, work, timeout)
        if isinstance(found, PutBackError):
            raise found
        return found

    def _adopts(self, connection: Connection, now: Round, name: str, place: Place) -> bool:
        """Let one that was put back go on instead of this one, unless that has begun."""
        if now.adopted is None or now.adopted_for is not None:
            return False
        is_open, aside, begin = (
            part.on(self._database.dialect) for part in (_IS_OPEN, _IS_ASIDE, _BEGIN_ADOPTED)
        )
        if connection.execute(is_open, self._where(place.subject, place.execution)).scalar() is not None:
            return False
        if connection.execute(aside, self._where(place.subject, now.adopted)).scalar() is None:
            return False  # it was dropped
        connection.execute(begin, self._named(name) | {"execution": place.execution})
        return True

    async def close(self, name: str, place: Place, number: int, *, timeout: float) -> None:
        """End the open execution without a state write. Repeating it is safe."""
        following = _NEXT.on(self._database.dialect)
        lock = _LOCK.on(self._database.dialect)
        parameters = _guard(place, self._namespace) | {"name": name}

        def work(connection: Connection) -> bool | None:
            if connection.execute(lock, parameters).one_or_none() is None:
                return None
            connection.execute(following, parameters | {"number": number})
            return True

        await self._fenced(place, work, timeout)

    async def failed(self, place: Place, error: str, *, timeout: float) -> int:
        """Count that an execution raised; return how often it has."""
        count = _FAILED.on(self._database.dialect)
        parameters = place.parameters(self._namespace) | {"last_error": error}

        def work(connection: Connection) -> int | None:
            return connection.execute(count, parameters).scalar()

        return await self._fenced(place, work, timeout)

    async def set_aside(self, name: str, place: Place, number: int, *, timeout: float) -> None:
        """Set the open execution aside, and begin the next."""
        aside, following = _ASIDE.on(self._database.dialect), _NEXT.on(self._database.dialect)

        def work(connection: Connection) -> str | None:
            found: str | None = connection.execute(aside, place.parameters(self._namespace)).scalar()
            if found is not None:
                connection.execute(
                    following, _guard(place, self._namespace) | {"name": name, "number": number}
                )
            return found

        await self._fenced(place, work, timeout)

    async def _fenced(self, place: Place, work: Callable[[Connection], T | None], timeout: float) -> T:
        found = await self._database.transaction(work, timeout=timeout)
        if found is None:
            raise place.fenced()
        return found

    # What operators do

    async def list(self, *, timeout: float) -> Sequence[SetAside]:
        """Return what is set aside, oldest first."""
        listed = _LIST.on(self._database.dialect)

        def work(connection: Connection) -> Sequence[SetAside]:
            return [
                SetAside(
                    id=f"{row.execution}@{row.subject.removeprefix(SINGLETON)}",
                    singleton=row.subject.removeprefix(SINGLETON),
                    failures=row.failures,
                    error=row.last_error or "",
                    steps=row.steps,
                    is_put_back=row.adopted is not None,
                    opened_at=_moment(row.opened_at),
                    set_aside_at=_moment(row.aside_at),
                )
                for row in connection.execute(listed, {"namespace": self._namespace})
            ]

        return await self._database.read(work, timeout=timeout)

    async def recorded(self, name: str, execution: str, *, timeout: float) -> Sequence[RecordedCall]:
        """Return what is in the journal of one, in the order it came."""
        recorded = _RECORDED.on(self._database.dialect)

        def work(connection: Connection) -> Sequence[RecordedCall]:
            rows = connection.execute(recorded, self._where(SINGLETON + name, execution))
            return [
                RecordedCall(
                    what=row.what, name=row.name, size=row.size, recorded_at=_moment(row.recorded_at)
                )
                for row in rows
            ]

        return await self._database.read(work, timeout=timeout)

    async def count(self, *, timeout: float) -> int:
        """Return how many are set aside."""
        count = _COUNT.on(self._database.dialect)

        def work(connection: Connection) -> int:
            return connection.execute(count, {"namespace": self._namespace}).scalar() or 0

        return await self._database.read(work, timeout=timeout)

    async def put_back(self, name: str, execution: str, *, timeout: float) -> str | None:
        """Let one that is set aside go on as soon as the open one has ended; None if there is none.

        Returns an empty text, or the one that was put back before and has not ended: nothing changed then.
        """
        dialect = self._database.dialect
        touch, now, aside, adopt = (part.on(dialect) for part in (_TOUCH_ROUND, _OPEN_NOW, _IS_ASIDE, _ADOPT))
        subject = SINGLETON + name

        def is_aside(connection: Connection, which: str) -> bool:
            return connection.execute(aside, self._where(subject, which)).scalar() is not None

        def work(connection: Connection) -> str | None:
            connection.execute(touch, self._named(name))
            if not is_aside(connection, execution):
                return None
            row = connection.execute(now, self._named(name)).one()
            standing = Round(row.number, row.adopted, row.adopted_for)
            before = standing.adopted
            if before not in (None, execution):
                is_next = standing.adopted_for is None and is_aside(connection, before)
                if is_next or standing.execution(row.version) == before:
                    return before
            connection.execute(adopt, self._named(name) | {"adopted": execution})
            return ""

        return await self._database.transaction(work, timeout=timeout)

    async def is_aside(self, name: str, execution: str, *, timeout: float) -> bool:
        """Return whether an execution is set aside."""
        aside = _IS_ASIDE.on(self._database.dialect)

        def work(connection: Connection) -> bool:
            return connection.execute(aside, self._where(SINGLETON + name, execution)).scalar() is not None

        return await self._database.read(work, timeout=timeout)

    async def open_now(self, name: str, *, timeout: float) -> str:
        """Return the execution that is open, or will be with the next durable call."""
        now = _OPEN_NOW.on(self._database.dialect)

        def work(connection: Connection) -> str:
            row = connection.execute(now, self._named(name)).one()
            return Round(row.number, row.adopted, row.adopted_for).execution(row.version)

        return await self._database.read(work, timeout=timeout)

    def _named(self, name: str) -> dict[str, object]:
        return {"namespace": self._namespace, "name": name}

    def _where(self, subject: str, execution: str) -> dict[str, object]:
        return {"namespace": self._namespace, "subject": subject, "execution": execution}


def _moment(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


def _guard(place: Place, namespace: str) -> dict[str, object]:
    parameters = place.parameters(namespace)
    del parameters["subject"], parameters["execution"]
    return parameters


def parse_set_aside(id: str) -> tuple[str, str]:
    """Return the singleton and the execution that the id of a `SetAside` names."""
    execution, at, name = id.partition("@")
    if not at or not name:
        raise ValueError(f"an execution's id is <number>@<singleton>, as list() shows it, got {id!r}")
    return name, execution
