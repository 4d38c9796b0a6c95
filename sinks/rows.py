"""From events to rows of the store: pure functions, one for each type of event that has a table of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from faultlens.codec import Event, encode
from faultlens.events import Data
from faultlens.topics import INPUT_TYPES
from sinks.answer_rows import ANSWERS
from sinks.input_rows import INPUTS
from sinks.tables import RawEvent, Row

Maker = Callable[[Event, Any, int], list[Row]]

_MAKERS: Final[dict[type[Data], Maker]] = INPUTS | ANSWERS


def rows_of(event: Event, *, arrived_ms: int, raw: bytes | None = None) -> list[Row]:
    """Return the rows that an input or output event leaves in the store; internal records leave none.

    The same event gives the same rows. `raw` is the record as it arrived, made from the event where it is not at hand.
    InvalidEventError: the event cannot be kept as it is.
    """
    rows = facts_of(event, arrived_ms=arrived_ms)
    if event.type in INPUT_TYPES:
        rows.append(raw_of(event, arrived_ms=arrived_ms, raw=raw))
    return rows


def facts_of(event: Event, *, arrived_ms: int) -> list[Row]:
    """Return the rows of what the event says, without the event itself; none if it is only kept as it arrived."""
    make = _MAKERS.get(type(event.data))
    return [] if make is None else make(event, event.data, arrived_ms)


def raw_of(event: Event, *, arrived_ms: int, raw: bytes | None) -> RawEvent:
    """Return the row of an input event as it arrived."""
    text = (encode(event) if raw is None else raw).decode()
    return RawEvent(event.type, event.source, event.id, event.subject, event.time_ms, arrived_ms, text)
