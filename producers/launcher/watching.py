"""Progress read from a job's own output: lines that a pattern finds, for training that cannot be changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from faultlens.codec import Event, event_of, stable_id
from faultlens.errors import UsageError
from faultlens.events import JobProgress
from producers.launcher.identity import Identity

# A line of progress is short; a longer one is cut, and what is cut off is not looked at.
LINE_BYTES: Final = 4_096
# A pattern is run over every line: not oftener than this are steps told.
EVERY_MS: Final = 1_000
_STEP_MAX: Final = 2**53


def pattern_of(text: str) -> re.Pattern[str]:
    """Return the pattern, which must name what it finds: `(?P<step>\\d+)`. UsageError: it does not, or is none."""
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise UsageError(f"--progress-pattern: {error}") from None
    if "step" not in pattern.groupindex:
        raise UsageError(r"--progress-pattern: name the step, as in 'step (?P<step>\d+)'")
    return pattern


class Watch:
    """Finds steps in output that comes in pieces. `told` is called with the events."""

    def __init__(
        self, pattern: re.Pattern[str], who: Identity, told: Callable[[Event], None], now_ms: Callable[[], int]
    ) -> None:
        self._pattern = pattern
        self._who = who
        self._told = told
        self._now_ms = now_ms
        self._rests: dict[int, bytes] = {}
        self._step = -1
        self._at_ms = 0

    def feed(self, stream: int, data: bytes, attempt: int) -> None:
        """Take more of a stream."""
        *lines, rest = (self._rests.get(stream, b"") + data).split(b"\n")
        self._rests[stream] = rest[:LINE_BYTES]
        found = None
        for line in lines:
            found = self._pattern.search(line[:LINE_BYTES].decode("utf-8", "replace")) or found
        if found is not None:
            self._tell(found.groupdict(), attempt)

    def _tell(self, found: Mapping[str, str | None], attempt: int) -> None:
        """Tell of the newest step, at most once a second: what came between is counted by its number."""
        now_ms, text = self._now_ms(), (found["step"] or "").replace(",", "")
        if not text.isdecimal() or int(text) > _STEP_MAX or int(text) <= self._step or now_ms - self._at_ms < EVERY_MS:
            return
        self._step, self._at_ms = int(text), now_ms
        data = JobProgress(self._who.job_id, attempt, self._step, tokens=_number(found.get("tokens")))
        id_ = stable_id("launcher", self._who.cluster, self._who.job_id, attempt, "progress", self._step)
        self._told(event_of(data, source=f"launcher/{self._who.job_id}", id_=id_, time_ms=now_ms))


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text.replace(",", ""))
    except ValueError:
        return None
