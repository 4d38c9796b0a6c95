"""Which days a report is about: an ISO week, or any days from and to, in UTC."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Final

from faultlens.clock import DAY_MS, moment_of, ms_of
from faultlens.errors import UsageError
from slo.intervals import Interval
from slo.report.data import Period

DAYS_LIMIT: Final = 92
_WEEK: Final = re.compile(r"(\d{4})-W(\d{2})")
_WEEK_MS: Final = 7 * DAY_MS


def week(text: str) -> Period:
    """Return the ISO week `2026-W47`, Monday to Sunday; UsageError says how a week is written."""
    match = _WEEK.fullmatch(text)
    year, number = match.groups() if match else ("0", "0")  # there is no year 0
    try:
        monday = date.fromisocalendar(int(year), int(number), 1)
    except ValueError:
        raise UsageError(f"not a week: {text!r} (write it like 2026-W47)") from None
    return _week_of(_midnight_ms(monday))


def days(first: str, last: str) -> Period:
    """Return the days from `first` up to and with `last`, at most 92; UsageError says what is wrong."""
    start, end = _day(first), _day(last)
    if end < start:
        raise UsageError(f"the last day ({last}) is before the first ({first}): swap them")
    count = (end - start).days + 1
    if count > DAYS_LIMIT:
        raise UsageError(f"{count} days are more than a report can show ({DAYS_LIMIT}): shorten the period")
    from_ms, to_ms = _midnight_ms(start), _midnight_ms(end + timedelta(days=1))
    return Period(from_ms, to_ms, _span(from_ms, to_ms))


def latest_week(known: Interval) -> Period:
    """Return the last whole week that the data cover the end of, else the week of their end, however short."""
    monday_ms = _monday_ms(known.to_ms)
    before = Interval(monday_ms - _WEEK_MS, monday_ms)
    return _week_of(before.from_ms if before.clipped(known).length_ms else monday_ms)


def up_to(period: Period, as_of_ms: int) -> Period:
    """Return the period as far as the data reach; marked when that is not to its end."""
    if as_of_ms >= period.to_ms:
        return period
    # What happened at the very last moment counts too.
    return replace(period, to_ms=max(period.from_ms, as_of_ms + 1), complete=False)


def before(period: Period, as_of_ms: int) -> Interval:
    """Return the same time of the period before: for a week that is half over, the first half of the last one."""
    length_ms = period.to_ms - period.from_ms
    return Interval(period.from_ms - length_ms, min(period.to_ms, as_of_ms) - length_ms)


def _week_of(monday_ms: int) -> Period:
    number = moment_of(monday_ms).isocalendar().week
    to_ms = monday_ms + _WEEK_MS
    return Period(monday_ms, to_ms, f"week {number}, {_span(monday_ms, to_ms)}")


def _span(from_ms: int, to_ms: int) -> str:
    first, last = moment_of(from_ms), moment_of(to_ms - DAY_MS)
    if first.date() == last.date():
        return f"{first.day} {first:%B %Y}"
    if (first.year, first.month) == (last.year, last.month):
        return f"{first.day} to {last.day} {last:%B %Y}"
    if first.year == last.year:
        return f"{first.day} {first:%B} to {last.day} {last:%B %Y}"
    return f"{first.day} {first:%B %Y} to {last.day} {last:%B %Y}"


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"not a day: {text!r} (write it like 2026-11-16)") from None


def _midnight_ms(day: date) -> int:
    return ms_of(datetime(day.year, day.month, day.day, tzinfo=UTC))


def _monday_ms(at_ms: int) -> int:
    """Return the Monday, 00:00 UTC, that begins the week of a moment; the epoch was a Thursday."""
    return (at_ms + 3 * DAY_MS) // _WEEK_MS * _WEEK_MS - 3 * DAY_MS
