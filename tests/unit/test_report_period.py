"""Which days a report is about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.clock import DAY_MS, HOUR_MS, moment_of, parse_moment
from faultlens.errors import UsageError
from slo.intervals import Interval
from slo.report.period import before, days, latest_week, up_to, week

MONDAY_MS = parse_moment("2026-11-16T00:00:00Z")


def test_week_47_of_2026_is_monday_16_to_sunday_22_november() -> None:
    period = week("2026-W47")
    assert (period.from_ms, period.to_ms) == (MONDAY_MS, MONDAY_MS + 7 * DAY_MS)
    assert period.label == "week 47, 16 to 22 November 2026"


def test_the_first_week_may_begin_in_the_year_before() -> None:
    assert week("2026-W01").label == "week 1, 29 December 2025 to 4 January 2026"


@pytest.mark.parametrize("text", ["2026-W00", "2026-W54", "2026-47", "47", "2026-W4", "last"])
def test_what_is_no_week_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match="2026-W47"):
        week(text)


def test_days_include_the_last_one() -> None:
    period = days("2026-11-16", "2026-11-16")
    assert period.to_ms - period.from_ms == DAY_MS
    assert period.label == "16 November 2026"
    assert days("2026-10-30", "2026-11-02").label == "30 October to 2 November 2026"


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        ("2026-11-17", "2026-11-16", "swap them"),
        ("2026-01-01", "2026-12-31", "365 days are more than"),
        ("16.11.2026", "2026-11-16", "write it like 2026-11-16"),
    ],
)
def test_days_that_make_no_report_are_refused(first: str, last: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        days(first, last)


def test_without_a_wish_it_is_the_last_whole_week_that_has_data() -> None:
    known = Interval(MONDAY_MS - 3 * DAY_MS, MONDAY_MS + 2 * DAY_MS)
    assert latest_week(known).from_ms == MONDAY_MS - 7 * DAY_MS


def test_without_a_whole_week_of_data_it_is_the_one_that_has_begun() -> None:
    known = Interval(MONDAY_MS + HOUR_MS, MONDAY_MS + 2 * DAY_MS)
    period = latest_week(known)
    assert period.from_ms == MONDAY_MS
    shown = up_to(period, known.to_ms)
    assert not shown.complete
    assert shown.to_ms == known.to_ms + 1


def test_a_week_that_is_over_is_shown_whole() -> None:
    period = week("2026-W47")
    assert up_to(period, period.to_ms) is period


def test_half_a_week_is_compared_with_the_same_half_of_the_one_before() -> None:
    assert before(week("2026-W47"), MONDAY_MS + 2 * DAY_MS) == Interval(MONDAY_MS - 7 * DAY_MS, MONDAY_MS - 5 * DAY_MS)
    assert before(week("2026-W47"), MONDAY_MS + 30 * DAY_MS) == Interval(MONDAY_MS - 7 * DAY_MS, MONDAY_MS)


@given(st.integers(0, 4_000_000_000_000), st.integers(0, 400 * DAY_MS))
def test_a_week_begins_on_a_monday_and_holds_or_just_precedes_the_end_of_the_data(from_ms: int, length_ms: int) -> None:
    known = Interval(from_ms, from_ms + length_ms)
    period = latest_week(known)
    assert moment_of(period.from_ms).isoweekday() == 1
    assert period.from_ms % DAY_MS == 0
    assert period.to_ms - period.from_ms == 7 * DAY_MS
    assert period.from_ms <= known.to_ms < period.to_ms + 7 * DAY_MS
