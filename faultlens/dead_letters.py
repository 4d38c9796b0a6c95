"""Records that could not be processed, as the events that tell of them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec
from msgspec import Struct

from faultlens.codec import Event, event_of, stable_id
from faultlens.events import DeadLetter
from faultlens.topics import TYPES

# Contract, section 1: whole up to 160 KiB (base64 keeps that below a record's 256 KiB), beyond it the first 64 KiB.
WHOLE_BYTES: Final = 160 * 1024
HEAD_BYTES: Final = 64 * 1024
MAX_ERROR_CHARACTERS: Final = 8_000
MAX_HEADERS: Final = 32
MAX_HEADER_CHARACTERS: Final = 1_024
SOURCE: Final = "faultlens/dead-letters"


class _Glance(Struct):
    type: str = ""
    subject: str = ""


class Origin(Struct, frozen=True):
    """Where a bad record was: topic, partition and offset, or the line of a file; and its key."""

    topic: str
    partition: int
    offset: int
    key: str = ""
    headers: dict[str, str] = {}


def told_headers(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    """Return a record's headers as a letter holds them: as text, the first 32, each cut at 1,024 characters."""
    first = islice(headers, MAX_HEADERS)
    return {
        name[:MAX_HEADER_CHARACTERS]: (value or b"").decode("utf-8", "replace")[:MAX_HEADER_CHARACTERS]
        for name, value in first
    }


def letter(value: bytes, origin: Origin, *, reason: str, error: str, at_ms: int, sha256: str | None = None) -> Event:
    """Return the dead letter of a record, with the same id whoever writes it.

    `sha256` is given where `value` is only the record's beginning.
    """
    if sha256 is None and len(value) > WHOLE_BYTES:
        sha256 = hashlib.sha256(value).hexdigest()
    kept = value if sha256 is None else value[:HEAD_BYTES]
    data = DeadLetter(
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
    return event_of(data, source=SOURCE, id_=identity, time_ms=at_ms)


def letter_key(origin: Origin) -> str:
    """Return the key that the origin's dead letter is sent under: the record's own, or else its topic."""
    return origin.key or origin.topic


def glance(raw: bytes) -> tuple[str, str]:
    """Return the topic and key of a record that is no event, as far as they can be told; else empty."""
    try:
        seen = msgspec.json.decode(raw, type=_Glance)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", ""
    event_type = TYPES.get(seen.type)
    return ("" if event_type is None else event_type.topic), seen.subject
