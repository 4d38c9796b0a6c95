"""What goes into a task and what comes out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from faultlens.codec import Event
from streams.context import Context
from streams.processor import Processor
from streams.runtime.state import Kept


@dataclass(frozen=True)
class Role:
    """A processor and the topics it reads. The first topic is the one that carries ticks.

    `wide`: the processor keeps what it knows under many small keys (`streams/processor.py`).
    """

    processor: Processor
    topics: tuple[str, ...]
    wide: bool = False

    @property
    def name(self) -> str:
        """The name of the role: its processor's."""
        return self.processor.name


class Record(Struct, frozen=True, gc=False):
    """One record of a partition, as bytes (`value`) or already decoded (`event`); neither: a tick.

    `arrived_ms` is when it arrived: the broker's append time, or the arrival clock of a file. `file` and `line` say
    where a recorded one can be found. `after`: a tick beyond the last record of a recording.
    """

    topic: str
    offset: int
    arrived_ms: int
    event: Event | None = None
    value: bytes = b""
    key: str = ""
    partition: int = 0
    file: str = ""
    line: int = 0
    after: bool = False
    headers: Sequence[tuple[str, bytes | None]] = ()


class Sent(Struct, frozen=True, gc=False):
    """A record to send: topic, record key (which partitions it), event."""

    topic: str
    key: str
    event: Event


class LaneRecord(Struct, frozen=True):
    """What a lane knows of itself, saved with every batch: it decides what is skipped after a crash.

    `next` is the offset after the last record taken, by topic; `surveyed_ms` the time of the last survey; `ticked_ms`
    that of the last tick.
    """

    clock_ms: int = 0
    next: dict[str, int] = {}
    surveyed_ms: int | None = None
    context: Context = Context()
    ticked_ms: int | None = None


class Batch(Struct, frozen=True):
    """What is to be written at once or not at all: changed keys (None: forgotten), records, the lane record."""

    changed: dict[str, Kept | None]
    sent: list[Sent]
    lane: LaneRecord
