"""The kernel's own log, read on from where the last run of the agent stopped: each line once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from faultlens.codec import Event
from faultlens.events import Check
from producers.agent.probe import MESSAGE_CHARS
from producers.kernel_log.folding import Folder
from producers.kernel_log.lines import kmsg_record
from producers.kernel_log.scanning import Scanner, Seen
from producers.kernel_log.stamps import LogClock

KMSG: Final = Path("/dev/kmsg")
# The kernel's own limit of a record (CONSOLE_EXT_LOG_MAX); a smaller buffer is refused.
RECORD_BYTES: Final = 8_192
# Lines taken at one go, so that in a storm reports and folds are not put off for long.
AT_ONCE: Final = 20_000


class Cursor(Struct, frozen=True):
    """The last record that was read: of which boot, and its number; -1: none yet."""

    boot_id: str
    sequence: int = -1


class Source(Protocol):
    """Where the kernel's records come from."""

    def records(self) -> Iterator[str]:
        """Yield the records that are there by now, each `priority,sequence,microseconds,flags;text`."""

    @property
    def overwritten(self) -> int:
        """How often records were overwritten before they could be read."""


class KmsgDevice:
    """`/dev/kmsg`: one read is one record; opened anew where it failed. OSError: it cannot be read."""

    def __init__(self, path: Path = KMSG) -> None:
        self._path = path
        self._file: int | None = None
        self.overwritten = 0

    def records(self) -> Iterator[str]:
        """Yield what is there by now."""
        if self._file is None:
            self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        while True:
            try:
                raw = os.read(self._file, RECORD_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:
                self.overwritten += 1
                continue
            except OSError:
                self.close()
                raise
            if not raw:
                return
            # Lines that begin with a space are the record's properties (SUBSYSTEM=…), not its text.
            yield raw.split(b"\n", 1)[0].decode("utf-8", "backslashreplace")

    def close(self) -> None:
        """Close the device; it is read from its beginning when it is opened again."""
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None


class KernelWatch:
    """Turns the kernel's records into faults: what the cursor has passed is not read again.

    `behind`: there were more records than are taken at one go, so that the next call should come at once.
    """

    def __init__(self, source: Source, scanner: Scanner, folder: Folder, cursor: Cursor) -> None:
        self._source = source
        self._scanner = scanner
        self._folder = folder
        self.cursor = cursor
        self.behind = False
        self._error: str | None = None
        self._told_overwritten = 0
        self._not_understood: list[str] = []

    def set_boot(self, boot_ms: int) -> None:
        """Take this for when the machine booted, from the next record on: its clock was set."""
        self._scanner.set_clock(LogClock(boot_ms))

    def poll(self, now_ms: int) -> list[Event]:
        """Return the faults that the log tells of since the last call, and the counts of those that repeated."""
        events: list[Event] = []
        taken = 0
        try:
            for record in islice(self._source.records(), AT_ONCE):
                taken += 1
                events += self._told(record)
            self._error = None
        except OSError as error:
            self._error = f"cannot be read: {error.strerror or error}"
        self.behind = taken == AT_ONCE
        return events + self._folder.due(now_ms)

    def _told(self, raw: str) -> list[Event]:
        """Return what a record is told as; one that we stumble over keeps none of the others from being read."""
        try:
            seen = self._taken(raw)
            return [] if seen is None else list(self._folder.take(seen))
        except Exception as error:  # noqa: BLE001 - whatever it is, the log has to be read on
            self._not_understood = [*self._not_understood[-1:], f"{type(error).__name__}: {error}"]
            return []

    def _taken(self, raw: str) -> Seen | None:
        """Return what a record tells of that was not read yet."""
        record = kmsg_record(raw)
        if record is None or record.sequence <= self.cursor.sequence:
            return None
        self.cursor = Cursor(self.cursor.boot_id, record.sequence)
        return self._scanner.take(record.line)

    def rest(self) -> list[Event]:
        """Return the counts that were not told yet: the agent ends here."""
        return self._folder.rest()

    def check(self) -> Check:
        """Return whether the log is read: without it nothing but the vendor's tools tells of faults."""
        if self._error is not None:
            return Check("kernel_log", "kernel", "error", message=self._error)
        if self._not_understood:
            told = f"a record could not be understood: {self._not_understood.pop()}"
            self._not_understood.clear()
            return Check("kernel_log", "kernel", "error", message=told[:MESSAGE_CHARS])
        lost = self._source.overwritten - self._told_overwritten
        self._told_overwritten = self._source.overwritten
        if lost:
            told = f"records were overwritten {lost} times before they could be read"
            return Check("kernel_log", "kernel", "warn", None, "overrun", told)
        return Check("kernel_log", "kernel", "pass")
