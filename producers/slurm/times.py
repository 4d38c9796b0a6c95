"""Slurm's times: epochs, or local time of whoever asked, without saying which."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Final

from faultlens.clock import SECOND_MS, ms_of

_UNKNOWN: Final = frozenset({"", "Unknown", "None", "N/A", "NONE", "INVALID", "(null)", "0"})
# Beyond it (a damaged cell, milliseconds taken for seconds) no calendar may hold what is reckoned from a time.
_END_MS: Final = ms_of(datetime(3000, 1, 1, tzinfo=UTC))
# A second occurs in many rows: of a job, its steps and its array.
_KNOWN_LIMIT: Final = 65_536


class TimeReader:
    """Reads times of one export. `zone` is the reader's (`TZ` when the export was made).

    `without_zone` counts the texts that only `zone` gave a meaning to, `twice` those that lie in the hour that a
    clock was set back and could not be told apart.
    """

    def __init__(self, zone: tzinfo = UTC) -> None:
        self.zone = zone
        self.without_zone = 0
        self.twice = 0
        self._known: dict[str, tuple[int, int]] = {}

    def read(self, text: str, *, not_before: int | None = None) -> int | None:
        """Return milliseconds since the epoch; None where Slurm knows no time. ValueError for anything else.

        A local time that occurs twice is the first one, unless that would be before `not_before`.
        """
        text = text.strip()
        if text in _UNKNOWN:
            return None
        try:
            at_ms = self._moment_ms(text, not_before)
        except ValueError:
            raise ValueError(f"not a time: {text[:40]!r}") from None
        if not 0 <= at_ms < _END_MS:
            raise ValueError(f"not a time of any job: {text[:40]!r}")
        return at_ms

    def _moment_ms(self, text: str, not_before: int | None) -> int:
        if text.isdigit():
            return int(text) * SECOND_MS
        moment = datetime.fromisoformat(text)
        return ms_of(moment) if moment.tzinfo is not None else self._local(text, moment, not_before)

    def _local(self, text: str, moment: datetime, not_before: int | None) -> int:
        self.without_zone += 1
        first, second = self._known.get(text) or self._both(text, moment)
        if second <= first:  # equal, or a time that the clock skipped
            return first
        if not_before is not None and first < not_before:
            return second
        self.twice += 1
        return first

    def _both(self, text: str, moment: datetime) -> tuple[int, int]:
        """Return what a local time is on the first and on the second pass; the same but once a year."""
        if len(self._known) >= _KNOWN_LIMIT:
            self._known.clear()
        both = ms_of(moment.replace(tzinfo=self.zone)), ms_of(moment.replace(tzinfo=self.zone, fold=1))
        self._known[text] = both
        return both
