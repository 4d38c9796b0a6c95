"""When a processor fails too often to go on: then the program is wrong, and not the record."""

from __future__ import annotations

from typing import Final

from faultlens.clock import MINUTE_MS

# More than this part of a minute's steps, but never fewer than the floor: one bad record of a quiet minute is a record.
MAX_SHARE: Final = 0.01
FLOOR: Final = 10


class FailureRate:
    """Counts steps and failures by minutes of a lane's clock.

    The minute that has just begun is judged by no fewer steps than the one before it had, so that a handful of
    failures at its start is not taken for all of it.
    """

    def __init__(self) -> None:
        self._minute = 0
        self._before = 0
        self._steps = 0
        self._failures = 0

    def count(self, now_ms: int, *, failed: bool = False) -> bool:
        """Count one step; return whether too many of this minute's failed."""
        minute = now_ms // MINUTE_MS
        if minute != self._minute:
            self._before = self._steps if minute == self._minute + 1 else 0
            self._minute, self._steps, self._failures = minute, 0, 0
        self._steps += 1
        if not failed:
            return False
        self._failures += 1
        return self._failures >= FLOOR and self._failures > MAX_SHARE * max(self._steps, self._before)
