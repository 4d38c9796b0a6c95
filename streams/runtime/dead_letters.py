"""Dead letters of the processors: where their records were, and what went wrong."""

from __future__ import annotations

import traceback

from faultlens.dead_letters import MAX_ERROR_CHARACTERS, Origin, letter, letter_key, told_headers
from faultlens.topics import DEAD_LETTERS
from streams.runtime.records import Record, Sent


def origin_of(record: Record) -> Origin:
    """Return where a record was; a recorded one is at its line (counted from 1) of its file."""
    if not record.file:
        return Origin(record.topic, record.partition, record.offset, record.key, told_headers(record.headers))
    return in_file(record.file, record.line, record.topic, record.key)


def in_file(file: str, line: int, topic: str, key: str = "") -> Origin:
    """Return the origin of a recorded line. Where its topic is not known, the file's name stands for it."""
    return Origin(topic or file, 0, line, key, {"file": file, "line": str(line)})


def dead_letter(
    value: bytes, origin: Origin, *, reason: str, error: str, at_ms: int, sha256: str | None = None
) -> Sent:
    """Return the dead letter of a record. `sha256` is given where `value` is only the record's beginning."""
    event = letter(value, origin, reason=reason, error=error, at_ms=at_ms, sha256=sha256)
    return Sent(DEAD_LETTERS, letter_key(origin), event)


def told(error: BaseException) -> str:
    """Return an exception with its traceback: what a dead letter says of a processor's failure."""
    text = "".join(traceback.format_exception(error))
    return text if len(text) <= MAX_ERROR_CHARACTERS else f"…{text[1 - MAX_ERROR_CHARACTERS :]}"
