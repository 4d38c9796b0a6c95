"""What a record is to the sink: an event with its rows, a tick, or a dead letter. Pure."""

from __future__ import annotations

import traceback
from typing import Final, Literal

from faultlens.arrival import placed
from faultlens.codec import Decoder, Event
from faultlens.dead_letters import Origin, letter, told_headers
from faultlens.errors import InvalidEventError
from faultlens.kafka import ARRIVED
from faultlens.topics import INPUT_TYPES, TOPICS, TYPES
from sinks.log import Taken

# All inputs and outputs; what processors tell each other has no table.
SUNK: Final = tuple(name for name, topic in TOPICS.items() if topic.kind != "internal")
Clock = Literal["appended", "recorded"]


class Intake:
    """Decodes records, each topic's with its own types only: who may write to one topic cannot speak in another.

    An event's rows are a function of its record alone, so that they are the same whenever it is read again.
    """

    def __init__(self, clock: Clock = "appended") -> None:
        self._recorded = clock == "recorded"
        self._decoders = {
            topic: Decoder({name: event_type for name, event_type in TYPES.items() if event_type.topic == topic})
            for topic in SUNK
        }

    def event(self, record: Taken) -> tuple[Event, int]:
        """Return the event in the record and when it arrived; InvalidEventError tells what is wrong with it."""
        event = self._decoders[record.topic].decode(record.value or b"")
        arrived_ms = _told_ms(record) if self._recorded else record.appended_ms
        if event.type in INPUT_TYPES:
            event = placed(event, arrived_ms=arrived_ms, clock_ms=arrived_ms)
        return event, arrived_ms


def _told_ms(record: Taken) -> int:
    """Return when a record that is played says it arrived; what follows from it does not say so."""
    for name, value in record.headers:
        if name == ARRIVED and value.isdigit():
            return int(value)
    return record.appended_ms


def is_tick(record: Taken) -> bool:
    """Return whether the record only says that time goes on."""
    return not record.value


def buried(record: Taken, reason: str, error: str) -> tuple[bytes, Event]:
    """Return key and event of the record's dead letter."""
    key = record.key or b""
    headers = told_headers(record.headers)
    origin = Origin(record.topic, record.partition, record.offset, key.decode("utf-8", "replace"), headers)
    event = letter(record.value or b"", origin, reason=reason, error=error, at_ms=record.appended_ms)
    return key or record.topic.encode(), event


def told(error: Exception) -> tuple[str, str]:
    """Return the reason and the text of what went wrong with a record."""
    if isinstance(error, InvalidEventError):
        return error.reason, str(error)
    return "processor_error", "".join(traceback.format_exception(error))
