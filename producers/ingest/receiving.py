"""From a request's body to events: what can be read, what its token may say, and what is wrong with the rest."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from faultlens.codec import Decoder, Event
from faultlens.errors import InvalidEventError
from faultlens.topics import INPUT_TYPES
from producers.ingest import nvsentinel
from producers.ingest.tokens import Grant

BODY_BYTES: Final = 1 << 20
EVENTS: Final = 500
ONE: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
LINES: Final = "application/x-ndjson"
_ERROR_CHARS: Final = 300


class Refused(NamedTuple):
    """An event that was not taken: which one of the request (from 0), and why."""

    number: int
    reason: str
    error: str


class Received(NamedTuple):
    """What a request brought. `silent`: messages that were read and say nothing that is worth an event."""

    events: list[Event]
    refused: list[Refused]
    silent: int


class RequestError(Exception):
    """The request cannot be read at all: `status` is the answer's."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Typed(Struct):
    type: str = ""


_split: Final = msgspec.json.Decoder(list[Raw]).decode
_read_type: Final = msgspec.json.Decoder(_Typed).decode


def received(body: bytes, content_type: str, grant: Grant, decoder: Decoder | None = None) -> Received:
    """Return what a body brings. RequestError: its type is not known, it is no list, or it holds too many events."""
    decoder = decoder or Decoder(INPUT_TYPES)
    found = Received([], [], 0)
    silent = 0
    for number, raw in enumerate(_messages(body, content_type)):
        try:
            events = _events(raw, decoder)
        except InvalidEventError as error:
            found.refused.append(Refused(number, error.reason, str(error)[:_ERROR_CHARS]))
            continue
        silent += not events
        for event in events:
            why = grant.refuses(event)
            if why is None:
                # Only a recording says itself when it arrived.
                found.events.append(replace(event, recorded_ms=None))
            else:
                found.refused.append(Refused(number, "forbidden", why[:_ERROR_CHARS]))
    return found._replace(silent=silent)


def _messages(body: bytes, content_type: str) -> list[bytes]:
    kind = content_type.partition(";")[0].strip().lower()
    if kind == LINES:
        messages = [line for line in body.split(b"\n") if line.strip()]
    elif kind == BATCH:
        try:
            messages = [bytes(raw) for raw in _split(body)]
        except msgspec.DecodeError as error:
            raise RequestError(400, f"no list of events: {error}") from None
    elif kind in (ONE, "application/json"):
        messages = [body]
    else:
        raise RequestError(415, f"{kind or 'no type'} is not read here: send {ONE}, {BATCH} or {LINES}")
    if len(messages) > EVENTS:
        raise RequestError(413, f"{len(messages)} events at once, at most {EVENTS} are taken: send them in parts")
    return messages


def _events(raw: bytes, decoder: Decoder) -> list[Event]:
    try:
        is_theirs = _read_type(raw).type == nvsentinel.TYPE
    except msgspec.DecodeError:
        is_theirs = False  # the decoder says precisely what is wrong
    return nvsentinel.events_of(raw) if is_theirs else [decoder.decode(raw)]
