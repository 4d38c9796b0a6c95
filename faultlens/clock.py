"""Time: the one door to the system's clock, and how moments are written."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def wall_ms() -> int:
    """Return the system's clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def monotonic_s() -> float:
    """Return seconds of a clock that only measures how long something takes: nothing sets it back or forward."""
    return time.monotonic()


def ms_of(moment: datetime) -> int:
    """Return an aware moment in whole milliseconds since the epoch (exact; below a millisecond it is cut)."""
    return (moment - _EPOCH) // _MILLISECOND


def moment_of(at_ms: int) -> datetime:
    """Return milliseconds since the epoch as an aware moment in UTC."""
    return _EPOCH + timedelta(milliseconds=at_ms)


def iso(at_ms: int) -> str:
    """Return milliseconds since the epoch as the contract writes them: `2026-11-23T04:12:07.512Z`."""
    return moment_of(at_ms).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def parse_moment(text: str) -> int:
    """Return the milliseconds of an RFC 3339 time with an offset; ValueError says what is missing."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"not a time: {text!r} (expected like 2026-11-23T04:12:07Z)") from None
    if moment.tzinfo is None:
        raise ValueError(f"no offset: {text!r} (add Z or +01:00)")
    return ms_of(moment)
