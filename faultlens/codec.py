"""Bytes to events and back: CloudEvents 1.0 in structured JSON, checked against the contract."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from hashlib import blake2b, blake2s, sha1
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from faultlens.clock import moment_of, ms_of
from faultlens.errors import InvalidEventError, Reason
from faultlens.events import FAULT_KINDS, Data, Moment
from faultlens.topics import TYPE_OF, TYPES, EventType

MAX_RECORD_BYTES: Final = 256 * 1024
# Reports of one node hardly differ from one to the next; decoding the same again and again would be most of a replay's
# work. How long each check took does differ, and nobody reads it: it is left out.
_HEALTH_MEMO_ENTRIES: Final = 8_192
# RFC 9562: the namespace of names that are URLs.
_URL_NAMESPACE: Final = bytes.fromhex("6ba7b8119dad11d180b400c04fd430c8")
_DURATION: Final = re.compile(rb'"duration_ms": ?[0-9.]{1,15}(?=[,} ])')
# As `ms_of` does it, three times an event: without the call.
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_FIRST_MS: Final = ms_of(datetime.min.replace(tzinfo=UTC))
_LAST_MS: Final = ms_of(datetime.max.replace(tzinfo=UTC))


class Event(Struct, frozen=True, gc=False):
    """A decoded event: who said what about which subject, and when (milliseconds since the epoch).

    `time_ms` is when it happened by its source's clock, corrected where that clock is known to be wrong (`skewed`).
    """

    type: str
    source: str
    id: str
    subject: str
    time_ms: int
    data: Data
    sent_ms: int | None = None
    recorded_ms: int | None = None
    skewed: bool = False


class _Envelope(Struct, gc=False):
    specversion: str
    type: str
    source: str
    id: str
    subject: str
    time: Moment
    data: Raw
    senttime: Moment | None = None
    recordedtime: Moment | None = None


class _OutEnvelope(Struct, omit_defaults=True, gc=False):
    specversion: str
    type: str
    source: str
    id: str
    subject: str
    time: datetime
    data: Data
    senttime: datetime | None = None
    recordedtime: datetime | None = None


_decode_envelope: Final = msgspec.json.Decoder(_Envelope).decode
_encoder: Final = msgspec.json.Encoder()


class Decoder:
    """Decodes records; keeps a bounded memo of health reports, which repeat but for their checks' durations."""

    def __init__(self, types: dict[str, EventType] = TYPES) -> None:
        self._decoders = {name: (msgspec.json.Decoder(t.data).decode, t.subject) for name, t in types.items()}
        self._health: dict[bytes, Data] = {}

    def decode(self, raw: bytes) -> Event:
        """Return the event in `raw`; InvalidEventError tells precisely what is wrong with it."""
        try:
            return self._event(raw)
        except RecursionError:
            raise InvalidEventError("bad_value", "lists or objects are nested too deeply") from None

    def _event(self, raw: bytes) -> Event:
        try:
            envelope = _decode_envelope(raw)
            if not raw.isascii():
                raw.decode()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _broken(raw, error) from None
        if len(raw) > MAX_RECORD_BYTES:
            raise InvalidEventError("too_large", f"{len(raw)} bytes, at most {MAX_RECORD_BYTES} are accepted")
        if envelope.specversion != "1.0":
            raise InvalidEventError("bad_value", f"specversion is {envelope.specversion!r}, expected '1.0'")
        try:
            decode_data, subject_field = self._decoders[envelope.type]
        except KeyError:
            raise InvalidEventError("unknown_type", f"type {envelope.type!r} is not of this contract") from None
        data = self._data(envelope, decode_data)
        subject = getattr(data, subject_field)
        if subject is None:
            # A command concerns a node or, without one, a job.
            subject = getattr(data, "job_id", None)
        if subject != envelope.subject:
            raise InvalidEventError(
                "subject_mismatch", f"subject is {envelope.subject!r} but data.{subject_field} is {subject!r}"
            )
        sent, recorded = envelope.senttime, envelope.recordedtime
        return Event(
            envelope.type,
            envelope.source,
            envelope.id,
            subject,
            _instant(envelope.time),
            data,
            None if sent is None else _instant(sent),
            None if recorded is None else _instant(recorded),
        )

    def _data(self, envelope: _Envelope, decode_data: Any) -> Data:
        if envelope.type != "faultlens.node.health.v1":
            return _checked(decode_data, envelope)
        key = _DURATION.sub(b'"duration_ms":null', envelope.data)
        known = self._health.get(key)
        if known is None:
            if len(self._health) >= _HEALTH_MEMO_ENTRIES:
                self._health.clear()
            envelope.data = Raw(key)
            known = self._health[key] = _checked(decode_data, envelope)
        return known


def _instant(moment: datetime) -> int:
    """Return the milliseconds of a moment that UTC's calendar holds: with its offset, one of year 1 may not be."""
    at_ms = (moment - _EPOCH) // _MILLISECOND
    if _FIRST_MS <= at_ms <= _LAST_MS:
        return at_ms
    raise InvalidEventError("bad_value", f"{moment.isoformat()} is no date in UTC")


def _checked(decode_data: Any, envelope: _Envelope) -> Data:
    try:
        return decode_data(envelope.data)  # type: ignore[no-any-return]
    except msgspec.ValidationError:
        pass
    try:
        return decode_data(msgspec.json.encode(_as_meant(envelope)))  # type: ignore[no-any-return]
    except msgspec.DecodeError as error:
        raise InvalidEventError(_reason_of(error), f"data of {envelope.type}: {error}") from None


def _as_meant(envelope: _Envelope) -> Any:
    """Return the data's fields without what other producers write otherwise.

    Many write null for an optional field that they leave out. A kind of fault that a newer one knows is `other`: it
    is recorded, not refused.
    """
    fields = _without_nulls(msgspec.json.decode(envelope.data))
    if envelope.type == "faultlens.node.fault.v1" and isinstance(fields, dict):
        kind = fields.get("kind")
        if isinstance(kind, str) and kind not in FAULT_KINDS:
            fields["kind"] = "other"
    return fields


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _reason_of(error: Exception) -> Reason:
    return "missing_field" if "missing required field" in str(error) else "bad_value"


def _broken(raw: bytes, error: Exception) -> InvalidEventError:
    if len(raw) > MAX_RECORD_BYTES:
        return InvalidEventError("too_large", f"{len(raw)} bytes, at most {MAX_RECORD_BYTES} are accepted")
    if isinstance(error, msgspec.ValidationError):
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as broken:
            return InvalidEventError("not_json", f"not JSON: {broken}")
        if not isinstance(value, dict):
            return InvalidEventError("not_an_object", f"a JSON {type(value).__name__}, expected an object")
        return InvalidEventError(_reason_of(error), f"envelope: {error}")
    return InvalidEventError("not_json", f"not JSON: {error}")


def encode(event: Event) -> bytes:
    """Return the event as one CloudEvent in JSON, without a line end; the same event gives the same bytes."""
    return _encoder.encode(
        _OutEnvelope(
            "1.0",
            event.type,
            event.source,
            event.id,
            event.subject,
            moment_of(event.time_ms),
            event.data,
            None if event.sent_ms is None else moment_of(event.sent_ms),
            None if event.recorded_ms is None else moment_of(event.recorded_ms),
        )
    )


def event_of(data: Data, *, source: str, id_: str, time_ms: int, recorded_ms: int | None = None) -> Event:
    """Return `data` in its envelope: type and subject follow from the data."""
    event_type = TYPE_OF[type(data)]
    subject = getattr(data, event_type.subject) or getattr(data, "job_id", "")
    return Event(event_type.name, source, id_, subject, time_ms, data, recorded_ms=recorded_ms)


def fingerprint(*parts: str) -> bytes:
    """Return 8 bytes that stand for the parts: equal parts, equal bytes (collisions: 1 in 2^64)."""
    return blake2s("\x1f".join(parts).encode(), digest_size=8).digest()


def stable_id(*parts: str | int) -> str:
    """Return an id derived from what a record is about, so that an output made twice is the same record twice."""
    return blake2b("\x1f".join(map(str, parts)).encode(), digest_size=13).hexdigest()


def uuid5(name: str) -> str:
    """Return the UUID of version 5 of a name in the namespace of URLs (RFC 9562): the same name, the same UUID."""
    digest = bytearray(sha1(_URL_NAMESPACE + name.encode(), usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
