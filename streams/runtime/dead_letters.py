"""Records that could not be processed, as the events that tell of them."""

from __future__ import annotations

import base64
import hashlib
import traceback
from typing import Final

import msgspec
from msgspec import Struct

from faultlens.codec import Event, event_of, stable_id
from faultlens.events import DeadLetter
from faultlens.topics import DEAD_LETTERS, TYPES
from streams.runtime.records import Record, Sent

# Contract, section 1: whole up to 160 KiB (base64 keeps that below a record's 256 KiB), beyond it the first 64 KiB.
WHOLE_BYTES: Final = 160 * 1024
HEAD_BYTES: Final = 64 * 1024
MAX_ERROR_CHARACTERS: Final = 8_000
SOURCE: Final = "faultlens/dead-letters"


class Origin(Struct, frozen=True):
    """Where a bad record was: topic, partition and offset, or the line of a file; and its key."""

    topic: str
    partition: int
    offset: int
    key: str = ""
    headers: dict[str, str] = {}


class _Glance(Struct):
    type: str = ""
    subject: str = ""


def origin_of(record: Record) -> Origin:
    """Return where a record was; a recorded one is at its line (counted from 1) of its file."""
    if not record.file:
        return Origin(record.topic, record.partition, record.offset, record.key)
    return in_file(record.file, record.line, record.topic, record.key)


def in_file(file: str, line: int, topic: str, key: str = "") -> Origin:
    """Return the origin of a recorded line. Where its topic is not known, the file's name stands for it."""
    return Origin(topic or file, 0, line, key, {"file": file, "line": str(line)})


def glance(raw: bytes) -> tuple[str, str]:
    """Return the topic and key of a record that is no event, as far as they can be told; else empty."""
    try:
        seen = msgspec.json.decode(raw, type=_Glance)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", ""
    event_type = TYPES.get(seen.type)
    return ("" if event_type is None else event_type.topic), seen.subject


def dead_letter(
    value: bytes, origin: Origin, *, reason: str, error: str, at_ms: int, sha256: str | None = None
) -> Sent:
    """Return the dead letter of a record. `sha256` is given where `value` is only the record's beginning."""
    if sha256 is None and len(value) > WHOLE_BYTES:
        sha256 = hashlib.sha256(value).hexdigest()
    kept = value if sha256 is None else value[:HEAD_BYTES]
    letter = DeadLetter(
        origin.topic,
        origin.partition,
        origin.offset,
        reason,
        error[:MAX_ERROR_CHARACTERS],
        base64.b64encode(kept).decode("ascii"),
        origin.headers,
        sha256,
    )
    digest = sha256 or hashlib.sha256(value).hexdigest()
    identity = stable_id("dead", origin.topic, origin.partition, origin.offset, reason, digest)
    event: Event = event_of(letter, source=SOURCE, id_=identity, time_ms=at_ms)
    return Sent(DEAD_LETTERS, origin.key or origin.topic, event)


def told(error: BaseException) -> str:
    """Return an exception with its traceback: what a dead letter says of a processor's failure."""
    text = "".join(traceback.format_exception(error))
    return text if len(text) <= MAX_ERROR_CHARACTERS else f"…{text[1 - MAX_ERROR_CHARACTERS :]}"
