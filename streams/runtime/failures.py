"""When a processor fails too often to go on: then the program is wrong, and not the record."""

from __future__ import annotations

from typing import Final

from faultlens.clock import MINUTE_MS

# More than this part of a minute's steps, but never fewer than the floor: one bad record of a quiet minute is a record.
MAX_SHARE: Final = 0.01
FLOOR: Final = 10


class FailureRate:
    """Failures by minutes of a lane's clock, against the steps of that minute.

    The minute that has just begun is judged by no fewer steps than the one before it had, so that a handful of
    failures at its start is not taken for all of it. `ends_ms` is when the minute ends.
    """

    def __init__(self) -> None:
        self.ends_ms = 0
        self._begun_at = 0
        self._before = 0
        self._failures = 0

    def turn(self, now_ms: int, steps: int) -> None:
        """Begin the minute that `now_ms` lies in, `steps` steps after the first one ever."""
        start_ms = now_ms // MINUTE_MS * MINUTE_MS
        self._before = steps - self._begun_at if start_ms == self.ends_ms else 0
        self._begun_at, self._failures, self.ends_ms = steps, 0, start_ms + MINUTE_MS

    def fail(self, steps: int) -> bool:
        """Count a failure, the last of `steps` steps; return whether too many of this minute's failed."""
        self._failures += 1
        expected = max(steps - self._begun_at, self._before)
        return self._failures >= FLOOR and self._failures > MAX_SHARE * expected
