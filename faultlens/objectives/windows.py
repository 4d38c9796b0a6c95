"""The time that an objective is measured over: rolling, or a week or month of the calendar in a zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal
from zoneinfo import ZoneInfo

from faultlens.clock import DAY_MS, HOUR_MS, moment_of, ms_of
from faultlens.objectives.durations import iso_duration

Calendar = Literal["week", "month"]
_NAMES: Final[dict[str, str]] = {"week": "P1W", "month": "P1M"}
# What a month's budget is worth; 30 days, as burn rates are usually told.
_LENGTHS_MS: Final[dict[str, int]] = {"week": 7 * DAY_MS, "month": 30 * DAY_MS}
# The longest that counters must reach back: a month of 31 days in which the clock goes back an hour.
_REACH_MS: Final[dict[str, int]] = {"week": 7 * DAY_MS + HOUR_MS, "month": 31 * DAY_MS + HOUR_MS}


@dataclass(frozen=True, slots=True)
class Window:
    """A rolling window of `length_ms`, or an ISO week or month of the calendar in `zone`.

    A calendar's `length_ms` is what its budget is reckoned by: 7 or 30 days.
    """

    length_ms: int
    calendar: Calendar | None = None
    zone: str = "UTC"

    @property
    def name(self) -> str:
        """As the contract writes it: P28D is rolling, P1W and P1M are of the calendar."""
        return iso_duration(self.length_ms) if self.calendar is None else _NAMES[self.calendar]

    @property
    def reach_ms(self) -> int:
        """How far back what was counted may still matter."""
        return self.length_ms if self.calendar is None else _REACH_MS[self.calendar]

    def start_ms(self, now_ms: int) -> int:
        """Return where the window that `now_ms` lies in begins, at a whole hour (UTC).

        In a zone that is off by half an hour, the calendar begins within its first hour.
        """
        if self.calendar is None:
            return (now_ms - self.length_ms) // HOUR_MS * HOUR_MS
        return _calendar_start_ms(self.calendar, self.zone, now_ms // HOUR_MS)


def rolling(length_ms: int) -> Window:
    """Return a rolling window."""
    return Window(length_ms)


def of_calendar(calendar: Calendar, zone: str) -> Window:
    """Return a window of the calendar; the zone must exist."""
    return Window(_LENGTHS_MS[calendar], calendar, zone)


@lru_cache(maxsize=64)
def _calendar_start_ms(calendar: Calendar, zone: str, hour: int) -> int:
    # A whole hour of which the second half is already the next month belongs to that.
    last = moment_of((hour + 1) * HOUR_MS - 1).astimezone(ZoneInfo(zone))
    first = last - timedelta(days=last.weekday()) if calendar == "week" else last.replace(day=1)
    midnight = datetime(first.year, first.month, first.day, tzinfo=ZoneInfo(zone))
    return ms_of(midnight.astimezone(UTC)) // HOUR_MS * HOUR_MS
