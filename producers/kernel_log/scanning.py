"""Reads a log from its first line to its last: what each line tells of, with what lines before it said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Final, NamedTuple

from faultlens.catalogue import Catalogue
from faultlens.clock import MINUTE_MS, ms_of, parse_moment
from producers.kernel_log.devices import Gpus, Told
from producers.kernel_log.lines import FABRIC_MANAGER, KERNEL, Line, split_line
from producers.kernel_log.patterns import Patterns
from producers.kernel_log.stamps import LogClock
from producers.kernel_log.xid import Numbered, numbered, told_by_manager

# Xid 14 is what a test from user space makes the driver print.
_INJECTED_XID: Final = "14"
_OFF_BUS: Final = "79"
# The driver says of a lost GPU first by number, then in words, or the other way round.
_SAME_LOSS_MS: Final = MINUTE_MS
# Both clocks in one line: the kernel's own, and the world's. Other lines give none away.
_AUDIT: Final = re.compile(r"\baudit\((?P<epoch>\d{9,11}\.\d{3}):\d+\)")
_RTC: Final = re.compile(r"setting system clock to (?P<moment>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d) UTC")
# Texts whose meaning is remembered; a storm of several faults repeats fewer.
_TEXTS_KNOWN: Final = 256
_BOOT_LINES_READ: Final = 200_000
# Beyond it (a damaged line) no calendar may hold what is reckoned from a time.
_END_MS: Final = ms_of(datetime(3000, 1, 1, tzinfo=UTC))


class Seen(NamedTuple):
    """A fault as one line tells of it, with what is known of its device by then."""

    at_ms: int
    kind: str
    code: str
    subcode: str | None
    pci: str | None
    link: int | str | None
    pid: int | None
    process: str | None
    message: str
    speaker: str
    synthetic: bool
    boot_id: str | None
    told: Told


class _Known(NamedTuple):
    """What a text meant, with what had been told before it, and what after."""

    before: Told
    after: Told
    boot_id: str | None
    found: Seen | None


class Scanner:
    """Reads lines in their order. `trust_user_space`: what user space wrote into the kernel's log counts as real.

    `boot_id`: of the boot that the lines are of, until one of them names another.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        patterns: Patterns,
        clock: LogClock,
        *,
        gpus: Gpus,
        trust_user_space: bool = False,
        boot_id: str | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._patterns = patterns
        self._clock = clock
        self._trust = trust_user_space
        self._told = Told(gpus)
        self._last_ms: int | None = None
        self._boot_id = boot_id
        self._off_bus: dict[str | None, int] = {}
        self._known: dict[tuple[str, str, bool, int], _Known] = {}
        self.lines = 0
        self.unknown = 0
        self.unstamped = 0
        self.without_zone = 0

    def set_clock(self, clock: LogClock) -> None:
        """Read the stamps of what comes by another clock: the machine's was set."""
        self._clock = clock

    def feed(self, raw: str) -> Seen | None:
        """Return the fault that a line tells of. Raises `UsageError` when its time cannot be made out."""
        line = split_line(raw)
        if line is None:
            self.lines += 1
            return None
        return self.take(line)

    def take(self, line: Line) -> Seen | None:
        """Return the fault that a line tells of, like `feed`."""
        self.lines += 1
        if line.boots or line.boot_id is not None:
            self._boot_id = line.boot_id
        found = self._meant(line)
        if found is None:
            self.unknown += 1
            return None
        at_ms = self._moment(line)
        if at_ms is None or (found.code == _OFF_BUS and self._is_echo(found.pci, at_ms)):
            self.unstamped += at_ms is None
            return None
        return found._replace(at_ms=at_ms)

    def _meant(self, line: Line) -> Seen | None:
        """Return what a line means. What the last texts meant is known: a storm is the same ones over and over."""
        since_us = line.stamp.since_boot_us if line.stamp is not None else None
        since_s = None if since_us is None else since_us // 1_000_000
        key = line.text, line.speaker, line.injected, self._patterns.age(since_s)
        known = self._known.get(key)
        if known is not None and known.before == self._told and known.boot_id == self._boot_id:
            self._told = known.after
            return known.found
        before = self._told
        self._told = before.after(line.text)
        found = self._recognised(line, since_s)
        if len(self._known) >= _TEXTS_KNOWN:
            self._known.clear()
        self._known[key] = _Known(before, self._told, self._boot_id, found)
        return found

    def _moment(self, line: Line) -> int | None:
        """Return a line's time; a continuation has that of the line before it, one that no calendar holds has none."""
        if line.stamp is not None:
            moment = line.stamp.moment
            self.without_zone += self._clock.zone is None and moment is not None and moment.tzinfo is None
            at_ms = self._clock.at_ms(line.stamp, after_ms=self._last_ms)
            if not 0 <= at_ms < _END_MS:
                return None
            self._last_ms = at_ms
        return self._last_ms

    def _recognised(self, line: Line, since_s: int | None) -> Seen | None:
        if line.speaker == FABRIC_MANAGER:
            by_number = told_by_manager(line.text)
        else:
            by_number = numbered(line.text, self._catalogue) if line.speaker == KERNEL else None
        if by_number is not None:
            return self._seen(line, by_number)
        worded = self._patterns.worded(line.text, line.speaker, since_boot_s=since_s)
        if worded is None:
            return None
        pci = worded.pci or (self._told.speaks_of if worded.code == _OFF_BUS else None)
        as_number = Numbered(
            worded.kind, worded.code, pci or "", worded.subcode, pid=worded.pid, process=worded.process
        )
        return self._seen(line, as_number)._replace(link=worded.link, pci=pci)

    def _seen(self, line: Line, found: Numbered) -> Seen:
        return Seen(
            at_ms=0,
            kind=found.kind,
            code=found.code,
            subcode=found.subcode,
            pci=found.pci or None,
            link=found.link,
            pid=found.pid,
            process=found.process,
            message=line.text,
            speaker=line.speaker,
            synthetic=(line.injected and not self._trust) or (found.kind == "xid" and found.code == _INJECTED_XID),
            boot_id=self._boot_id,
            told=self._told,
        )

    def _is_echo(self, pci: str | None, at_ms: int) -> bool:
        """Return whether the loss of this GPU was told within the last minute, by number or in words."""
        before = self._off_bus.get(pci)
        self._off_bus[pci] = at_ms
        return before is not None and 0 <= at_ms - before <= _SAME_LOSS_MS


def boot_moment(lines: Iterable[str]) -> int | None:
    """Return when the machine booted, from a line that carries both clocks; None if there is none or no need."""
    for raw in islice(lines, _BOOT_LINES_READ):
        line = split_line(raw)
        if line is None or line.stamp is None:
            continue
        since_us = line.stamp.since_boot_us
        if since_us is None:
            return None  # the lines have moments of their own
        if found := _AUDIT.search(line.text):
            return round(float(found["epoch"]) * 1000) - since_us // 1000
        if found := _RTC.search(line.text):
            return parse_moment(found["moment"].replace(" ", "T") + "Z") - since_us // 1000
    return None


def scan(lines: Iterable[str], scanner: Scanner) -> Iterator[Seen]:
    """Yield the faults that lines tell of."""
    for raw in lines:
        seen = scanner.feed(raw)
        if seen is not None:
            yield seen
