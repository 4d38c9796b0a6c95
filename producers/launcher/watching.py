"""Progress read from what a job prints or writes to a file: lines that patterns find, for training that cannot be
changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from faultlens.clock import SECOND_MS
from faultlens.codec import Event, event_of, stable_id
from faultlens.errors import UsageError
from faultlens.events import JobCheckpoint, JobProgress
from faultlens.signatures.matcher import PatternError, compile_pattern
from producers.launcher.identity import Identity

# A line of progress is short; of what has no end of a line not more than this is kept.
LINE_BYTES: Final = 4_096
# Not oftener than this is anything told: what came between is counted by its number.
EVERY_MS: Final = SECOND_MS
# A file of progress, where nothing else is said: lines that begin with the step.
STEP_FIRST: Final = r"^\s*(?P<step>\d+)\b"
_STEP_MAX: Final = 2**53
# As a carriage return ends a line for those who draw a bar of progress.
_ENDS: Final = (b"\n", b"\r")

Found = Mapping[str, str | None]


def pattern_of(text: str, option: str) -> Any:
    """Return the pattern, which must name what it finds: `(?P<step>\\d+)`. UsageError: it does not, or is none.

    It is RE2's, which takes time in proportion to the text whatever the pattern: output must not wait for it.
    """
    try:
        pattern = compile_pattern(text, role="root")
    except PatternError as error:
        raise UsageError(f"{option}: {error}") from None
    if b"step" not in pattern.groupindex:
        raise UsageError(rf"{option}: name the step, as in 'step (?P<step>\d+)'")
    return pattern


class Watch:
    """Finds in output that comes in pieces what `steps` and `saves` look for, and tells the newest of it."""

    def __init__(
        self,
        who: Identity,
        attempt: int,
        *,
        told: Callable[[Event, str | None], None],
        now_ms: Callable[[], int],
        steps: Any = None,
        saves: Any = None,
    ) -> None:
        """`told` is called with each event, and with where a checkpoint lies if the pattern names its `path`."""
        self._who = who
        self._attempt = attempt
        self._told = told
        self._now_ms = now_ms
        self._rests: dict[int, bytes] = {}
        self._newest = [_Newest(pattern, data) for pattern, data in ((steps, _progress), (saves, _saved)) if pattern]

    def feed(self, stream: int, data: bytes) -> None:
        """Take more of a stream."""
        if not self._newest:
            return
        block = self._rests.get(stream, b"") + data
        end = max(block.rfind(mark) for mark in _ENDS) + 1
        self._rests[stream] = block[end : end + LINE_BYTES]
        lines = block[:end].replace(b"\r", b"\n")
        for newest in self._newest:
            newest.feed(lines)
        self.tell()

    def tell(self, *, at_last: bool = False) -> None:
        """Tell the newest of what was found, if the last word is a while ago; `at_last`: in any case, since no more
        comes, and lines without an end too."""
        now_ms = self._now_ms()
        for rest in self._rests.values() if at_last else ():
            for newest in self._newest:
                newest.feed(rest)
        for newest in self._newest:
            found = newest.due(now_ms, at_last=at_last)
            if found is not None:
                self._tell(newest.data_of(self._who, self._attempt, found), found.get("path"), now_ms)

    def _tell(self, data: JobProgress | JobCheckpoint, path: str | None, now_ms: int) -> None:
        who, what = self._who, type(data).__name__
        id_ = stable_id("launcher", who.cluster, who.job_id, self._attempt, what, data.step)
        self._told(event_of(data, source=f"launcher/{who.job_id}", id_=id_, time_ms=now_ms), path)


class _Newest:
    """The newest lines in which a pattern found something, until they are told; steps only ever grow."""

    def __init__(self, pattern: Any, data_of: Callable[[Identity, int, Found], JobProgress | JobCheckpoint]) -> None:
        self.data_of = data_of
        self._pattern = pattern
        self._lines: bytes | None = None
        self._step = -1
        self._at_ms: int | None = None

    def feed(self, lines: bytes) -> None:
        # Whether there is anything is all that is asked of most of the output, since it costs the least.
        if self._pattern.search(lines):
            self._lines = lines

    def due(self, now_ms: int, *, at_last: bool) -> Found | None:
        """Return what was found last, once; None: nothing new, or it is too soon."""
        if self._lines is None or not (at_last or self._at_ms is None or now_ms - self._at_ms >= EVERY_MS):
            return None
        *_, last = self._pattern.finditer(self._lines)
        self._lines = None
        found = {_text(name): raw and _text(raw) for name, raw in last.groupdict().items()}
        step = (found["step"] or "").replace(",", "")
        if not step.isdecimal() or not self._step < int(step) <= _STEP_MAX:
            return None
        self._step, self._at_ms = int(step), now_ms
        return found | {"step": step}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _progress(who: Identity, attempt: int, found: Found) -> JobProgress:
    return JobProgress(who.job_id, attempt, int(found["step"] or 0), tokens=_number(found.get("tokens")))


def _saved(who: Identity, attempt: int, found: Found) -> JobCheckpoint:
    """Return that a checkpoint was saved; without a word of how long it took, it held nothing up."""
    seconds = _number(found.get("seconds"))
    return JobCheckpoint(who.job_id, attempt, int(found["step"] or 0), seconds or 0.0, ok=True, blocking=bool(seconds))


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text.replace(",", ""))
    except ValueError:
        return None
