"""Cron expressions: what is refused, and a year of instants in ten time zones against walked clocks."""

from __future__ import annotations

import bisect
import functools
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from hypothesis import given
from hypothesis import strategies as st

from redis_cluster_kit.entity import CronExpression
from redis_cluster_kit.entity.cron_expression import Schedule, as_expression, as_zone

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # half an hour
    "Africa/Cairo",  # a gap at midnight
    "America/Havana",  # an overlap at midnight
    "Pacific/Chatham",  # quarters of an hour
    "America/Santiago",
    "Asia/Kathmandu",  # no turns, three quarters
    "Europe/Dublin",  # winter is the exception there
]
STEP = timedelta(minutes=5)
BEGIN, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)

# What each says, written out a second time: minutes, hours (None: all), days of the month, days of the week.
EXPRESSIONS: dict[str, tuple[set[int], set[int] | None, set[int] | None, set[int] | None]] = {
    "0 * * * *": ({0}, None, None, None),
    "*/30 * * * *": ({0, 30}, None, None, None),
    "45 * * * 0": ({45}, None, None, {6}),
    "30 2 * * *": ({30}, {2}, None, None),
    "30 1 * * *": ({30}, {1}, None, None),
    "*/15 2 * * *": ({0, 15, 30, 45}, {2}, None, None),
    "0 0 * * *": ({0}, {0}, None, None),
    "0 */2 * * *": ({0}, set(range(0, 24, 2)), None, None),
    "20 23 * * 6,0": ({20}, {23}, None, {5, 6}),
    "10 0-3 1,29 * *": ({10}, {0, 1, 2, 3}, {1, 29}, None),
}


def schedule(expression: str, zone: str = "UTC") -> Schedule:
    return Schedule(CronExpression.parse(expression), ZoneInfo(zone))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@functools.cache
def walked(zone: str) -> list[tuple[datetime, datetime]]:
    """What a clock on the wall shows through the year, step by step."""
    there, found, now = ZoneInfo(zone), [], BEGIN - timedelta(days=2)
    while now < END + timedelta(days=2):
        found.append((now, now.astimezone(there).replace(tzinfo=None, fold=0)))
        now += STEP
    return found


def names(expression: str, wall: datetime) -> bool:
    minutes, hours, days, weekdays = EXPRESSIONS[expression]
    return (
        wall.minute in minutes
        and (hours is None or wall.hour in hours)
        and (days is None or wall.day in days)
        and (weekdays is None or wall.weekday() in weekdays)
    )


def expected(expression: str, zone: str) -> list[datetime]:
    """The instants of the year by walking: no croniter, and no arithmetic with offsets."""
    clock = walked(zone)
    if EXPRESSIONS[expression][1] is None:
        found = [instant for instant, wall in clock if names(expression, wall)]
    else:
        first: dict[datetime, datetime] = {}
        for instant, wall in clock:
            first.setdefault(wall, instant)
        highest, shown = datetime(1970, 1, 1), []  # noqa: DTZ001 - a wall clock
        for instant, wall in clock:  # the first time a clock gets so far
            if wall > highest:
                highest = wall
                shown.append((wall, instant))
        walls, wall = [], clock[0][1]
        while wall < clock[-1][1]:
            if names(expression, wall):
                walls.append(wall)
            wall += STEP
        found = [first.get(wall) or _first_beyond(wall, shown) for wall in walls]
    return sorted({instant for instant in found if BEGIN < instant < END})


def _first_beyond(wall: datetime, shown: list[tuple[datetime, datetime]]) -> datetime:
    return shown[bisect.bisect(shown, (wall, END + timedelta(days=9)))][1]


@pytest.mark.parametrize("zone", ZONES)
def test_a_year_of_instants_is_what_walking_the_clock_finds(zone: str) -> None:
    for expression in EXPRESSIONS:
        planned, found, now = schedule(expression, zone), [], BEGIN
        while (now := planned.next(now)) < END:
            found.append(now)
        assert found == expected(expression, zone), expression
        assert len(found) > 10


def test_a_fixed_hour_in_the_autumn_overlap_comes_once_at_the_first() -> None:
    berlin = schedule("30 2 * * *", "Europe/Berlin")
    assert berlin.next(at("2026-10-24T12:00")) == at("2026-10-25T00:30")
    assert berlin.next(at("2026-10-25T00:30")) == at("2026-10-26T01:30")
    new_york = schedule("30 1 * * *", "America/New_York")
    assert list(new_york.upcoming(at("2026-10-31T12:00"), 2)) == [
        at("2026-11-01T05:30"),
        at("2026-11-02T06:30"),
    ]
    assert schedule("* 2 * * *", "Europe/Berlin").next(at("2026-10-25T01:10")) == at("2026-10-26T01:00")


def test_a_fixed_hour_in_the_spring_gap_comes_once_right_after_it() -> None:
    berlin = schedule("*/15 2 * * *", "Europe/Berlin")
    assert list(berlin.upcoming(at("2026-03-28T02:00"), 2)) == [
        at("2026-03-29T01:00"),
        at("2026-03-30T00:00"),
    ]
    cairo = schedule("0 0 * * *", "Africa/Cairo")
    assert list(cairo.upcoming(at("2026-04-23T12:00"), 2)) == [at("2026-04-23T22:00"), at("2026-04-24T21:00")]


def test_every_hour_follows_real_hours() -> None:
    berlin = schedule("30 * * * *", "Europe/Berlin")
    autumn = list(berlin.upcoming(at("2026-10-24T23:00"), 4))
    assert autumn == [at(f"2026-10-{day}") for day in ("24T23:30", "25T00:30", "25T01:30", "25T02:30")]
    spring = list(berlin.upcoming(at("2026-03-28T23:00"), 4))
    assert spring == [at(f"2026-03-{day}") for day in ("28T23:30", "29T00:30", "29T01:30", "29T02:30")]
    seconds = schedule("* * * * * */20", "Europe/Berlin")
    around = list(seconds.upcoming(at("2026-10-25T00:59:30"), 4))
    assert [instant - around[0] for instant in around] == [timedelta(seconds=20 * n) for n in range(4)]


def test_seconds_stand_last() -> None:
    planned = schedule("0 2 * * * 15")
    assert planned.next(at("2026-01-01T02:00:14.9")) == at("2026-01-01T02:00:15")
    assert planned.next(at("2026-01-01T02:00:15")) == at("2026-01-02T02:00:15")


@given(
    zone=st.sampled_from(ZONES),
    expression=st.sampled_from(list(EXPRESSIONS)),
    after=st.integers(0, 8759 * 60),
    span=st.integers(1, 10_000),
)
def test_the_latest_is_the_last_of_all(zone: str, expression: str, after: int, span: int) -> None:
    planned = schedule(expression, zone)
    begin = BEGIN + timedelta(minutes=after)
    end = begin + timedelta(minutes=span)
    last, now = None, begin
    while (now := planned.next(now)) <= end:
        last = now
    assert planned.latest(begin, end) == last


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields, it must have 5, or 6 with the seconds last"),
        ("* * * * * * 2030", "7 fields"),
        ("60 * * * *", "minute '60' is not valid"),
        ("0 24 * * *", "hour '24' is not valid"),
        ("0 0 0 * *", "day of month '0' is not valid"),
        ("0 0 * 13 *", "month '13' is not valid"),
        ("0 0 * * MOON", "day of week 'MOON' is not valid"),
        ("0 0 * * * 60", "second '60' is not valid"),
        ("R * * * *", "minute 'R' is random"),
        ("0 r(1-3) * * *", "hour 'r(1-3)' is random"),
        ("H * * * *", "minute 'H' is hashed"),
        ("0 0 30 2 *", "day of month and month never come together"),
        ("@reboot", "cannot be read"),
    ],
)
def test_what_is_no_expression_is_refused_and_the_field_is_named(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="cron expression") as caught:
        CronExpression.parse(text)
    assert said in str(caught.value)


@pytest.mark.parametrize("given", ["0 2 * * *", CronExpression.parse("0 2 * * *"), croniter("0 2 * * *")])
def test_text_or_what_was_made_of_it(given: Any) -> None:
    assert as_expression(given) == CronExpression.parse("0  2 * * *")
    assert hash(as_expression(given)) == hash(CronExpression.parse("0 2 * * *"))


@pytest.mark.parametrize(
    ("given", "error"),
    [(7, TypeError), (croniter("0 2 1 * 1", day_or=False), ValueError), (croniter("R 2 * * *"), ValueError)],
)
def test_what_is_neither_is_refused(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        as_expression(given)


def test_aliases() -> None:
    assert schedule("@daily", "Asia/Kathmandu").next(at("2026-01-01T00:00")) == at("2026-01-01T18:15")
    assert CronExpression.parse("@hourly").is_hour_free


def test_zones_and_instants_are_checked() -> None:
    assert as_zone("Europe/Berlin") == ZoneInfo("Europe/Berlin") == as_zone(ZoneInfo("Europe/Berlin"))
    with pytest.raises(ValueError, match="no time zone 'Mars/Base'"):
        as_zone("Mars/Base")
    with pytest.raises(TypeError, match="the name of one"):
        as_zone(2)
    with pytest.raises(ValueError, match="aware"):
        schedule("0 2 * * *").next(datetime(2026, 1, 1))  # noqa: DTZ001
