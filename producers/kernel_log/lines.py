"""A line of a kernel log in any of its clothes: dmesg, journalctl, syslog, /dev/kmsg, pstore, fabric manager."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from producers.kernel_log.stamps import LogClock, Stamp, boot_stamp, iso_stamp, words_stamp

LINE_CHARS: Final = 64_000
KERNEL: Final = "kernel"
FABRIC_MANAGER: Final = "fabricmanager"

_KMSG: Final = re.compile(r"(\d{1,20}),(\d{1,20}),(\d{1,20}),[^;]*;(.*)$", re.ASCII)
_PRIORITY: Final = re.compile(r"^<(\d{1,3})>(.*)$")
_DECODED: Final = re.compile(
    r"^(kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local\d) *:\w+ *: ?(.*)$"
)
_ISO: Final = re.compile(r"^(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?) +(.*)$")
_BSD: Final = re.compile(r"^([A-Z][a-z]{2}) +(\d{1,2}) (\d\d:\d\d:\d\d(?:\.\d+)?) (.*)$")
_FULL: Final = re.compile(
    r"^[A-Z][a-z]{2} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?) ([A-Z]{2,5}|[+-]\d\d(?:\d\d)?) (.*)$"
)
_HUMAN: Final = re.compile(r"^\[[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d:\d\d:\d\d) (\d{4})\] ?(.*)$")
_FABRIC: Final = re.compile(r"^\[([A-Z][a-z]{2}) (\d{1,2}) (\d{4}) (\d\d:\d\d:\d\d)\] \[(\w+)\] \[tid \d+\] (.*)$")
_BOOT: Final = re.compile(r"^\[ *(\d+)\.(\d+)(?:@\d+)?\](?:\[ *[TC]\d+\])? ?(.*)$")
_BOOT_MARK: Final = re.compile(r"^-- (?:Boot ([0-9a-f]{32})|Reboot) --$")
_COMMENT: Final = re.compile(r"^-- .* --$|^(?:Panic|Oops)#\d+ Part\d+$|^dmesg-\S+:?$")
# Who speaks in a syslog line: the kernel never has a process number, others that count have.
_SPEAKER: Final = re.compile(
    r"^\S+ (kernel|systemd|nv-fabricmanager|nvidia-fabricmanager|[\w./@-]+\[\d+\])(?:\[\d+\])?: ?(.*)$"
)


class Line(NamedTuple):
    """A line taken apart. `speaker` is `kernel`, `fabricmanager`, or the name of another program.

    `injected` is whether the kernel's log says that user space wrote it. `boot_id` is set by lines that name one,
    `boots` by those that say only that a new boot begins.
    """

    text: str
    stamp: Stamp | None = None
    speaker: str = KERNEL
    injected: bool = False
    boot_id: str | None = None
    boots: bool = False


class Record(NamedTuple):
    """A record of /dev/kmsg: its number in this boot, and its line."""

    sequence: int
    line: Line


class Parsed(NamedTuple):
    """A line with its moment."""

    at_ms: int
    line: Line


def parse_line(raw: str, clock: LogClock) -> Parsed | None:
    """Return a line with its moment; None for one without a time, such as a continuation.

    Raises `UsageError` when the clock lacks what the line's time needs.
    """
    line = split_line(raw)
    if line is None or line.stamp is None:
        return None
    return Parsed(clock.at_ms(line.stamp), line)


def split_line(raw: str) -> Line | None:
    """Return a line taken apart; None for what carries no message. Never fails."""
    text = raw.rstrip("\r\n")[:LINE_CHARS]
    if not text.strip():
        return None
    mark = _BOOT_MARK.match(text)
    if mark is not None:
        return Line("", boot_id=mark[1], boots=True)
    if _COMMENT.match(text):
        return None
    for form in _FORMS:
        try:
            line = form(text)
        except (ValueError, KeyError, TypeError, OverflowError, OSError):
            continue
        if line is not None:
            return line
    return Line(text)


def kmsg_record(raw: str) -> Record | None:
    """Return a record of /dev/kmsg, `priority,sequence,microseconds,flags;text`; None for what is none."""
    found = _KMSG.match(raw)
    if found is None:
        return None
    priority, sequence, since_us, text = found.groups()
    return Record(int(sequence), Line(text, Stamp(int(since_us)), injected=_from_user(int(priority))))


def _kmsg(text: str) -> Line | None:
    record = kmsg_record(text)
    return None if record is None else record.line


def _from_user(priority: int) -> bool:
    """Return whether a syslog priority has another facility than the kernel's (0)."""
    return priority >> 3 != 0


def _prefixed(text: str) -> Line | None:
    """Return a line behind `<6>` or `kern  :info  : `, which say who wrote it."""
    raw, decoded = _PRIORITY.match(text), _DECODED.match(text)
    if raw is None and decoded is None:
        return None
    rest = raw[2] if raw else decoded[2] if decoded else ""
    injected = _from_user(int(raw[1])) if raw else decoded is not None and decoded[1] != "kern"
    line = next((found for form in (_boot, _iso, _human) if (found := form(rest)) is not None), Line(rest))
    return line._replace(injected=injected)


def _iso(text: str) -> Line | None:
    found = _ISO.match(text)
    return None if found is None else _spoken(found[2], iso_stamp(found[1]))


def _bsd(text: str) -> Line | None:
    found = _BSD.match(text)
    return None if found is None else _spoken(found[4], words_stamp(found[1], found[2], found[3]))


def _full(text: str) -> Line | None:
    """Return a line of `journalctl -o short-full`; of named zones only UTC is believed."""
    found = _FULL.match(text)
    if found is None:
        return None
    offset = found[2] if found[2][0] in "+-" else "+00" if found[2] in ("UTC", "GMT") else ""
    return _spoken(found[3], iso_stamp(found[1] + offset))


def _human(text: str) -> Line | None:
    found = _HUMAN.match(text)
    return None if found is None else Line(found[5], words_stamp(found[1], found[2], found[3], found[4]))


def _fabric(text: str) -> Line | None:
    found = _FABRIC.match(text)
    if found is None:
        return None
    stamp = words_stamp(found[1], found[2], found[4], found[3])
    return Line(f"{found[5]}: {found[6]}", stamp, speaker=FABRIC_MANAGER)


def _boot(text: str) -> Line | None:
    found = _BOOT.match(text)
    return None if found is None else _spoken(found[3], boot_stamp(found[1], found[2]))


def _spoken(rest: str, stamp: Stamp) -> Line:
    """Return a line whose text may begin with host and speaker, and then with the kernel's own stamp."""
    found = _SPEAKER.match(rest)
    if found is None:
        return Line(rest, stamp)
    speaker = found[1].partition("[")[0]
    text = found[2]
    inner = _BOOT.match(text) if speaker == KERNEL else None
    return Line(inner[3] if inner else text, stamp, speaker=_name_of(speaker))


def _name_of(speaker: str) -> str:
    return FABRIC_MANAGER if "fabricmanager" in speaker else speaker


def _journal(text: str) -> Line | None:
    """Return a line of `journalctl -o json`."""
    if not text.startswith("{"):
        return None
    fields: dict[str, Any] = json.loads(text)
    message = fields["MESSAGE"]
    if isinstance(message, list):  # bytes that are no text
        message = bytes(message).decode("utf-8", errors="replace")
    kernel = fields.get("_TRANSPORT") == KERNEL
    moment = datetime.fromtimestamp(int(fields["__REALTIME_TIMESTAMP"]) / 1_000_000, UTC)
    return Line(
        str(message)[:LINE_CHARS],
        Stamp(moment=moment),
        speaker=KERNEL if kernel else _name_of(str(fields.get("SYSLOG_IDENTIFIER", "unknown"))),
        injected=kernel and str(fields.get("SYSLOG_FACILITY", "0")) != "0",
        boot_id=fields.get("_BOOT_ID"),
    )


_FORMS: Final[tuple[Callable[[str], Line | None], ...]] = (
    _kmsg,
    _prefixed,
    _journal,
    _fabric,
    _human,
    _boot,
    _iso,
    _full,
    _bsd,
)
