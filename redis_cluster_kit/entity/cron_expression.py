"""When a cron is due: an expression of croniter, a time zone, and what both mean where clocks are turned.

Pure, and the same on every pod with the same time zone data. croniter only finds wall-clock times, as if
there were no time zones; which instant a wall-clock time stands for is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import CroniterBadDateError, croniter

__all__ = ["CronExpression", "Schedule", "as_expression", "as_zone"]

_FIELDS = ("minute", "hour", "day of month", "month", "day of week", "second")
_SECOND = timedelta(seconds=1)
_LONGEST_TURN = timedelta(hours=25)
"""No clock is ever turned back by more than a day."""
_START = datetime(2026, 1, 1, tzinfo=UTC)


class CronExpression:
    """A cron expression: five fields, or six with the seconds last; also `@daily` and its like.

    Made by `CronExpression.parse(text)`, which raises `ValueError` if it is none or never comes.
    """

    __slots__ = ("_fields", "is_hour_free", "text")

    def __init__(self, text: str, fields: Any, *, is_hour_free: bool) -> None:
        self.text = text
        """As it was written."""
        self.is_hour_free = is_hour_free
        """Whether it runs in every hour: then it follows real hours where clocks are turned."""
        self._fields = fields

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an expression; `ValueError` says which field is wrong, and why."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a checker
            raise TypeError(f"a cron expression must be text, got {text!r}")
        parts = text.split()
        label = f"cron expression {text!r}"
        if not text.strip().startswith("@"):
            _check_fields(label, parts)
        try:
            fields = croniter(text, _START)
            fields.get_next(datetime)
        except CroniterBadDateError as error:
            raise ValueError(f"{label}: day of month and month never come together") from error
        except (ValueError, KeyError) as error:
            raise ValueError(f"{label} cannot be read: {error}") from error
        return cls(" ".join(parts), fields, is_hour_free=fields.expanded[1] == ["*"])

    def __repr__(self) -> str:
        return f"CronExpression.parse({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CronExpression) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def next_wall(self, wall: datetime) -> datetime:
        """Return the first wall-clock time after `wall` that it names; both without a time zone."""
        found: datetime = self._fields.get_next(datetime, start_time=wall.replace(tzinfo=UTC, fold=0))
        return found.replace(tzinfo=None)


def _check_fields(label: str, parts: list[str]) -> None:
    if len(parts) not in (5, 6):
        raise ValueError(f"{label} has {len(parts)} fields, it must have 5, or 6 with the seconds last")
    for place, (name, part) in enumerate(zip(_FIELDS, parts, strict=False)):
        for item in part.split(","):
            if item[:1] in ("R", "r", "H", "h"):
                kind = "random" if item[0] in "Rr" else "hashed"
                raise ValueError(
                    f"{label}: {name} {part!r} is {kind}; pods must agree on every instant, write it out"
                )
        alone = ["*"] * 6
        alone[place] = part
        try:
            croniter.expand(" ".join(alone))
        except (ValueError, KeyError) as error:
            raise ValueError(f"{label}: {name} {part!r} is not valid: {error}") from error


def as_expression(given: object) -> CronExpression:
    """Return the expression that a text, a `CronExpression` or a `croniter` stands for."""
    if isinstance(given, CronExpression):
        return given
    if isinstance(given, croniter):
        if not getattr(given, "_day_or", True) or given.second_at_beginning:
            raise ValueError("a croniter with day_or=False or second_at_beginning=True is not understood")
        return CronExpression.parse(" ".join(given.expressions))
    if isinstance(given, str):
        return CronExpression.parse(given)
    raise TypeError(f"a cron expression is text, a CronExpression or a croniter, got {given!r}")


def as_zone(given: object) -> ZoneInfo:
    """Return the time zone of a name like `Europe/Berlin`."""
    if isinstance(given, ZoneInfo) and given.key is not None:  # pyright: ignore[reportUnnecessaryComparison] - from a file it is
        return given
    if not isinstance(given, str):
        raise TypeError(f"a time zone is the name of one, like 'Europe/Berlin', got {given!r}")
    try:
        return ZoneInfo(given)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            f"there is no time zone {given!r} here: write it like 'Europe/Berlin'; where the system has no "
            "time zone data, install the tzdata package"
        ) from error


@dataclass(frozen=True, slots=True)
class Schedule:
    """An expression in a time zone.

    A wall-clock time that an expression with a fixed hour names is one instant: the first of two in autumn,
    and in spring the first instant after the gap it falls into. An expression that runs in every hour
    follows real hours: it comes in both of two equal hours, and not for one that is left out.
    """

    expression: CronExpression
    zone: ZoneInfo

    def next(self, after: datetime) -> datetime:
        """Return the first instant after `after`, in UTC."""
        if after.utcoffset() is None:
            raise ValueError(f"an instant is an aware datetime, got {after.isoformat()}")
        after = after.astimezone(UTC).replace(microsecond=0)
        if self.expression.is_hour_free:
            return self._next_free(after)
        return self._next_fixed(after)

    def upcoming(self, after: datetime, number: int) -> Iterator[datetime]:
        """Yield the next few instants."""
        for _ in range(number):
            after = self.next(after)
            yield after

    def latest(self, after: datetime, until: datetime) -> datetime | None:
        """Return the last instant after `after` and not after `until`, None if there is none."""
        found = self.next(after)
        if found > until:
            return None
        before, beyond = found, until.astimezone(UTC)
        # next() never goes back: halve the span in which it begins to lead beyond `until`.
        while beyond - before > _SECOND:
            middle = before + (beyond - before) / 2
            following = self.next(middle)
            if following <= until:
                before = found = following
            else:
                beyond = middle
        following = self.next(before)
        return following if following <= until else found

    # An hour that is fixed: each wall-clock time once

    def _next_fixed(self, after: datetime) -> datetime:
        wall = self._wall(after)
        if wall.fold:
            wall = self._end_of_overlap(wall)
        while True:
            wall = self.expression.next_wall(wall)
            instant = self._first(wall)
            if instant > after:
                return instant

    def _first(self, wall: datetime) -> datetime:
        """Return the first instant of a wall-clock time, or the end of the gap it is in."""
        instant = self._instant(wall, 0)
        if self._wall(instant).replace(fold=0) == wall:
            return instant
        return self._turn(self._instant(wall, 1), instant)

    def _end_of_overlap(self, wall: datetime) -> datetime:
        """Return the last second of the overlap whose second round shows this wall-clock time."""
        low, high = timedelta(), self._offset(wall, 0) - self._offset(wall, 1)
        while high - low > _SECOND:
            middle = (low + high) // 2
            middle -= timedelta(microseconds=middle.microseconds)
            later = wall + middle
            if self._offset(later, 0) > self._offset(later, 1):
                low = middle
            else:
                high = middle
        return wall + low

    # Every hour: the instants at which a clock on the wall shows what was written

    def _next_free(self, after: datetime) -> datetime:
        wall = self._wall(after)
        found = self._next_shown(wall, after)
        turned = after + _LONGEST_TURN
        if self._wall(turned) - self._wall(after) < _LONGEST_TURN:
            # Clocks go back soon: what they show again may come before what they have not shown yet.
            turn = self._turn(after, turned)
            again = self.expression.next_wall(self._wall(turn).replace(fold=0) - _SECOND)
            instant = self._instant(again, 1)
            if again <= wall.replace(fold=0) and instant > after:
                found = min(found, instant)
        return found

    def _next_shown(self, wall: datetime, after: datetime) -> datetime:
        wall = wall.replace(fold=0)
        while True:
            wall = self.expression.next_wall(wall)
            for fold in (0, 1):
                instant = self._instant(wall, fold)
                if instant > after and self._wall(instant).replace(fold=0) == wall:
                    return instant

    # Wall clocks

    def _wall(self, instant: datetime) -> datetime:
        return instant.astimezone(self.zone).replace(tzinfo=None)

    def _offset(self, wall: datetime, fold: int) -> timedelta:
        offset = wall.replace(tzinfo=self.zone, fold=fold).utcoffset()
        assert offset is not None
        return offset

    def _instant(self, wall: datetime, fold: int) -> datetime:
        return (wall - self._offset(wall, fold)).replace(tzinfo=UTC, fold=0)

    def _turn(self, before: datetime, after: datetime) -> datetime:
        """Return when the clock was turned between these two instants, to the second."""
        offset = before.astimezone(self.zone).utcoffset()
        while after - before > _SECOND:
            middle = before + (after - before) // 2
            middle -= timedelta(microseconds=middle.microsecond)
            if middle <= before:
                break
            if middle.astimezone(self.zone).utcoffset() == offset:
                before = middle
            else:
                after = middle
        return after
