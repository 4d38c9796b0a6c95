"""Times as kernel logs write them, and what else must be known to make moments of them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from typing import Final, NamedTuple

from faultlens.clock import DAY_MS, ms_of
from faultlens.errors import UsageError

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_FRACTION: Final = re.compile(r"[.,](\d{1,9})")
# A log goes on into January: the year is the next one when a month-day jumps back by more than this.
_YEAR_TURNS_MS: Final = 180 * DAY_MS


class Stamp(NamedTuple):
    """A time as it stands in a line: `since_boot_us`, or a `moment` that may lack its zone.

    Without a year the moment is in 1904, which has every day.
    """

    since_boot_us: int | None = None
    moment: datetime | None = None
    has_year: bool = True


class LogClock(NamedTuple):
    """What the lines themselves do not say: when the machine booted, the log's time zone, and the year.

    `zone` None means that UTC is assumed where a line has no offset.
    """

    boot_ms: int | None = None
    zone: tzinfo | None = None
    year: int | None = None

    def at_ms(self, stamp: Stamp, *, after_ms: int | None = None) -> int:
        """Return a stamp in milliseconds since the epoch; `after_ms`: of the line before, for logs without years.

        Raises `UsageError`, which names the option that is missing.
        """
        if stamp.since_boot_us is not None:
            if self.boot_ms is None:
                raise UsageError("the lines count from the machine's boot: say when that was with --boot-time")
            return self.boot_ms + stamp.since_boot_us // 1000
        if stamp.moment is None:
            raise ValueError("a stamp without a time")
        if stamp.has_year:
            return self._moment_ms(stamp.moment)
        if self.year is None:
            raise UsageError("the lines have no year: give the first line's with --year")
        found = self._moment_ms(_in_year(stamp.moment, self.year))
        turns = 0
        while after_ms is not None and after_ms - found > _YEAR_TURNS_MS:
            turns += 1
            found = self._moment_ms(_in_year(stamp.moment, self.year + turns))
        return found

    def _moment_ms(self, moment: datetime) -> int:
        return ms_of(moment if moment.tzinfo is not None else moment.replace(tzinfo=self.zone or UTC))


def _in_year(moment: datetime, year: int) -> datetime:
    """Return the moment in a year; 29 February becomes 1 March where there is none."""
    try:
        return moment.replace(year=year)
    except ValueError:
        return moment.replace(year=year, month=3, day=1)


def iso_stamp(text: str) -> Stamp:
    """Return a stamp of `2025-01-21T04:41:44,285060+00:00`. ValueError if it is none."""
    return Stamp(moment=datetime.fromisoformat(_FRACTION.sub(_six_digits, text)))


def _six_digits(found: re.Match[str]) -> str:
    return "." + found[1][:6].ljust(6, "0")


def words_stamp(month: str, day: str, time: str, year: str | None = None) -> Stamp:
    """Return a stamp of `Nov`, `23`, `04:12:07`, perhaps with a year. ValueError if it is none."""
    clock = datetime.fromisoformat("1904-01-01T" + _FRACTION.sub(_six_digits, time))
    moment = clock.replace(year=int(year) if year else 1904, month=_MONTHS.index(month) + 1, day=int(day))
    return Stamp(moment=moment, has_year=year is not None)


def boot_stamp(seconds: str, fraction: str) -> Stamp:
    """Return a stamp of `[  206.764307]`."""
    return Stamp(since_boot_us=int(seconds) * 1_000_000 + int(fraction[:6].ljust(6, "0")))
