"""A broker's records as a lane takes them: with the time they arrived at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from faultlens.events import NodeHealth
from faultlens.kafka import AFTER, ARRIVED, ENDS
from faultlens.topics import TYPE_OF
from streams.runtime.records import Record

_REPORT: Final = TYPE_OF[NodeHealth].name.encode()


class Consumed(Protocol):
    """A record as the Kafka client hands it over; `timestamp` is the broker's append time in milliseconds."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes]]: ...


def as_appended(consumed: Consumed) -> Record:
    """Return the record as it was appended: the broker's time is when it arrived."""
    return _record(consumed, consumed.timestamp)


def as_recorded(consumed: Consumed) -> Record:
    """Return a record of a recording: when it arrived is said in its header; without one it moves no clock."""
    after = not consumed.value and any(name == AFTER for name, _ in consumed.headers)
    return _record(consumed, _told_ms(consumed.headers), after=after)


def ends_recording(record: Consumed) -> bool:
    """Return whether a recording that is played is over with this tick."""
    return not record.value and any(name == ENDS for name, _ in record.headers)


def is_waited_for(records: Iterable[Consumed]) -> bool:
    """Return whether somebody may wait for what follows from these: they are not only ticks and reports of nodes.

    Only looked at, not decoded: a fault whose message names that type is taken for a report, and gathered as one.
    """
    return any(record.value and _REPORT not in record.value for record in records)


def _record(record: Consumed, arrived_ms: int, *, after: bool = False) -> Record:
    key = record.key
    return Record(
        record.topic,
        record.offset,
        arrived_ms,
        value=record.value or b"",
        key="" if key is None else key.decode("utf-8", "replace"),
        partition=record.partition,
        after=after,
        headers=record.headers,
    )


def _told_ms(headers: Sequence[tuple[str, bytes]]) -> int:
    for name, value in headers:
        if name == ARRIVED and value.isdigit():
            return int(value)
    return 0
