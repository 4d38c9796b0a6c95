"""When a recorded event arrived, and what its own clock is worth (contract, section 1: clock, skew)."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from faultlens.clock import DAY_MS, MINUTE_MS, iso, moment_of, ms_of
from faultlens.codec import Event
from faultlens.errors import InvalidEventError, Reason
from faultlens.events import Data, JobAlive, JobPending, RankExited

SKEW_MS: Final = 5 * MINUTE_MS
AHEAD_LIMIT_MS: Final = DAY_MS
TOO_OLD_MS: Final = 7 * DAY_MS
# How long a recording goes on after its latest event.
TAIL_MS: Final = 6 * MINUTE_MS
# A recorded arrival so far beyond all before it is believed unless records after it say otherwise.
JUMP_MS: Final = DAY_MS
JUMP_LOOK_AHEAD_RECORDS: Final = 1_000
VOTERS: Final = 9
LOOK_AHEAD_RECORDS: Final = 10_000
# What may be held while looking ahead; only records of some 6 KiB each reach it before their number does.
LOOK_AHEAD_BYTES: Final = 64 * 1024 * 1024


class Entry(Struct, gc=False):
    """One line of a recording: the event in it, or why it is none; `arrived_ms` is filled in by `arrivals`.

    `sha256` is that of the whole line where `raw` is only its beginning. `doubted`: its recorded arrival was not
    believed.
    """

    file: str
    line: int
    raw: bytes
    event: Event | None
    reason: Reason | None = None
    error: str = ""
    sha256: str | None = None
    arrived_ms: int = 0
    doubted: bool = False


class End:
    """When a recording is over: six minutes after the latest thing that it tells of."""

    def __init__(self) -> None:
        self.latest_ms = 0

    def see(self, entry: Entry) -> None:
        """Take note of an entry. What a sender's clock puts far ahead is told when it arrives."""
        event, arrived_ms = entry.event, entry.arrived_ms
        if event is None:
            return
        if self.latest_ms < event.time_ms <= arrived_ms + SKEW_MS:
            self.latest_ms = event.time_ms
        elif self.latest_ms < arrived_ms:
            self.latest_ms = arrived_ms

    @property
    def at_ms(self) -> int:
        """The end of the evidence window after the latest event, and a minute in which all have answered."""
        return self.latest_ms + TAIL_MS


def arrivals(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries of one file with their arrival time, never going back.

    That is `recordedtime` as far as it is `believed`; where it is absent, the record's own `time`, but at most the
    lower median of `time` over this record and those that follow it: one vote per source, until nine sources have voted
    or 10,000 records were looked at. So a quiet weekend moves the clock, and one source with a wrong clock does not.
    Both ends of the part looked at only move forward, and at most nine votes are kept in order: the cost of a record
    does not depend on how far ahead it must be looked.
    """
    source = believed(entries)
    window = _Window(source)
    clock_ms: int | None = None
    while (entry := window.take(clock_ms)) is not None:
        clock_ms = entry.arrived_ms
        yield entry
        if window.is_empty:
            # Nothing was looked at ahead: as long as the records say when they arrived, nobody needs to vote.
            for recorded in source:
                event = recorded.event
                if event is None or event.recorded_ms is None:
                    window.add(recorded)
                    break
                clock_ms = max(clock_ms, event.recorded_ms)
                recorded.arrived_ms = clock_ms
                yield recorded


def believed(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries of one file, with the arrival put right of those that claim to have come later than they can.

    That is one more than a day ahead of all before it, if records after it go back: after a pause in a recording all
    that follows comes as late. One record of another source that does, among the next 1,000, confirms it. Otherwise it
    arrived with those before it: one wrong clock must not carry everybody's into the future.
    """
    source = iter(entries)
    ahead: deque[Entry] = deque()
    latest_ms: int | None = None
    while (entry := ahead.popleft() if ahead else next(source, None)) is not None:
        event = entry.event
        if event is not None and (recorded_ms := event.recorded_ms) is not None:
            if latest_ms is None or recorded_ms - latest_ms > JUMP_MS:
                recorded_ms = _confirmed_ms(event.source, recorded_ms, latest_ms, _looked_ahead(source, ahead))
                if recorded_ms != event.recorded_ms:
                    entry.event, entry.doubted = _received(event, recorded_ms), True
            if latest_ms is None or recorded_ms > latest_ms:
                latest_ms = recorded_ms
        yield entry


def _looked_ahead(source: Iterator[Entry], ahead: deque[Entry]) -> deque[Entry]:
    """Return what follows, with as much more of the source as may be held."""
    size = sum(len(entry.raw) for entry in ahead)
    while len(ahead) < JUMP_LOOK_AHEAD_RECORDS and size < LOOK_AHEAD_BYTES:
        entry = next(source, None)
        if entry is None:
            break
        ahead.append(entry)
        size += len(entry.raw)
    return ahead


def _confirmed_ms(source: str, recorded_ms: int, latest_ms: int | None, ahead: Iterable[Entry]) -> int:
    """Return the arrival of a record that claims to be far ahead of the latest: its own unless what follows objects."""
    since_ms = earliest_ms = recorded_ms - JUMP_MS
    for entry in ahead:
        if (event := entry.event) is not None:
            at_ms = event.time_ms if event.recorded_ms is None else event.recorded_ms
            if at_ms >= since_ms and event.source != source:
                return recorded_ms
            earliest_ms = min(earliest_ms, at_ms)
    if earliest_ms >= since_ms:
        return recorded_ms
    return earliest_ms if latest_ms is None else latest_ms


def _received(event: Event, at_ms: int) -> Event:
    """Return the event as received at this time.

    If its own time is as far ahead, when it was said to be received is all that tells what its clock is worth.
    """
    sent_ms = event.sent_ms
    if sent_ms is None and event.time_ms - at_ms > AHEAD_LIMIT_MS:
        sent_ms = event.recorded_ms
    return replace(event, recorded_ms=at_ms, sent_ms=sent_ms)


class _Window:
    """The record at hand with those that were looked at behind it, and the vote of every source among them."""

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries
        self._ahead: deque[Entry] = deque()
        self._bytes = 0
        self._times: dict[str, deque[int]] = {}
        self._votes: list[int] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing was looked at beyond the records taken."""
        return not self._ahead

    def take(self, clock_ms: int | None) -> Entry | None:
        """Return the record at hand with its arrival, given that of the one before; None: there is none left."""
        if not self._ahead and not self._pull():
            return None
        entry = self._ahead[0]
        if entry.event is not None:
            own_ms = self._arrival_ms(entry.event)
        else:
            own_ms = self._first_arrival_ms() if clock_ms is None else clock_ms
        entry.arrived_ms = own_ms if clock_ms is None else max(clock_ms, own_ms)
        self._pop()
        return entry

    def _arrival_ms(self, event: Event) -> int:
        return min(event.time_ms, self.median_ms()) if event.recorded_ms is None else event.recorded_ms

    def _first_arrival_ms(self) -> int:
        """Return the arrival of the first event: lines before it must not move its clock. 0 where none is in sight."""
        while not self._times and self._may_look_further() and self._pull():
            pass
        first = next((entry.event for entry in self._ahead if entry.event is not None), None)
        return 0 if first is None else self._arrival_ms(first)

    def _pop(self) -> None:
        """Go on to the next record: the next one of the same source votes in place of this one."""
        entry = self._ahead.popleft()
        self._bytes -= len(entry.raw)
        event = entry.event
        if event is None:
            return
        times = self._times[event.source]
        self._votes.remove(times.popleft())
        if times:
            insort(self._votes, times[0])
        else:
            del self._times[event.source]

    def median_ms(self) -> int:
        """Return the lower median of the votes, looking ahead as far as needed; 0 where nobody votes."""
        while len(self._votes) < VOTERS and self._may_look_further() and self._pull():
            pass
        return self._votes[(len(self._votes) - 1) // 2] if self._votes else 0

    def _may_look_further(self) -> bool:
        return len(self._ahead) < LOOK_AHEAD_RECORDS and self._bytes < LOOK_AHEAD_BYTES

    def _pull(self) -> bool:
        entry = next(self._entries, None)
        if entry is None:
            return False
        self.add(entry)
        return True

    def add(self, entry: Entry) -> None:
        """Look at one more record: its source votes unless it has done so."""
        self._ahead.append(entry)
        self._bytes += len(entry.raw)
        event = entry.event
        if event is None:
            return
        times = self._times.get(event.source)
        if times is None:
            self._times[event.source] = deque((event.time_ms,))
            insort(self._votes, event.time_ms)
        else:
            times.append(event.time_ms)


def placed(event: Event, *, arrived_ms: int, clock_ms: int) -> Event:
    """Return the event with the time it is processed at: its own, unless its clock is known to be wrong.

    A sender whose `senttime` differs from the arrival by more than 5 minutes has its times corrected by the
    difference; then, what is more than 5 minutes ahead of the clock happened now. Both are marked. More than 24 hours
    ahead is an InvalidEventError.
    """
    sent_ms = event.sent_ms
    if sent_ms is not None and not -SKEW_MS <= sent_ms - arrived_ms <= SKEW_MS:
        event = _shifted(event, arrived_ms - sent_ms)
    ahead_ms = event.time_ms - clock_ms
    if ahead_ms <= SKEW_MS:
        return event
    if ahead_ms > AHEAD_LIMIT_MS:
        raise InvalidEventError(
            "time_ahead", f"time is {iso(event.time_ms)}, more than 24 h ahead of the arrival at {iso(clock_ms)}"
        )
    return _shifted(event, -ahead_ms)


def _shifted(event: Event, by_ms: int) -> Event:
    """Return the event with all times of its sender's clock moved, marked as skewed."""
    time_ms = event.time_ms + by_ms
    sent_ms = None if event.sent_ms is None else event.sent_ms + by_ms
    try:
        moment_of(time_ms)
        data = _shifted_data(event.data, by_ms)
    except OverflowError:
        raise InvalidEventError("bad_value", f"time, corrected by {by_ms} ms for senttime, is no date") from None
    return replace(event, time_ms=time_ms, sent_ms=sent_ms, data=data, skewed=True)


def _shifted_data(data: Data, by_ms: int) -> Data:
    """Return the data with the moments moved that were read from the sender's clock."""
    if isinstance(data, RankExited) and data.first_error_at is not None:
        return replace(data, first_error_at=moment_of(ms_of(data.first_error_at) + by_ms))
    if isinstance(data, JobAlive) and data.stalled is not None:
        since = moment_of(ms_of(data.stalled.since) + by_ms)
        return replace(data, stalled=replace(data.stalled, since=since))
    if isinstance(data, JobPending):
        return replace(data, since=moment_of(ms_of(data.since) + by_ms))
    return data
