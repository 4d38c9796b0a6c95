"""A log in memory: topics with partitions and offsets, and batches that are written whole or not at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from zlib import crc32

from faultlens.codec import encode
from faultlens.topics import CONTEXT
from streams.runtime.records import Batch, LaneRecord, Record, Role
from streams.runtime.state import KeptCodec, MemoryStates
from streams.runtime.task import Task


class MemoryLog:
    """What a broker keeps: every topic's partitions, and per role and lane the committed states and lane record.

    Records are kept as bytes and states encoded, so that whoever reads them gets what a restart would get. Topics in
    `narrow` have one partition, all others `partitions`.
    """

    def __init__(self, partitions: int = 1, narrow: frozenset[str] = frozenset()) -> None:
        self.partitions = partitions
        self._narrow = narrow
        self._topics: dict[tuple[str, int], list[Record]] = defaultdict(list)
        self._states: dict[tuple[str, int], dict[str, bytes]] = defaultdict(dict)
        self._lanes: dict[tuple[str, int], LaneRecord] = {}
        self._codecs: dict[str, KeptCodec] = {}

    def append(self, topic: str, key: str, value: bytes, arrived_ms: int) -> None:
        """Append a record to the partition of its key; records of `context` go to every partition."""
        numbers = self._numbers(topic)
        for number in numbers if topic == CONTEXT else (crc32(key.encode()) % len(numbers),):
            partition = self._topics[topic, number]
            record = Record(topic, len(partition), arrived_ms, value=value, key=key, partition=number)
            partition.append(record)

    def tick(self, topic: str, arrived_ms: int, *, after: bool = False) -> None:
        """Append a tick to every partition of the topic; `after`: beyond the last record of a recording."""
        for number in self._numbers(topic):
            partition = self._topics[topic, number]
            partition.append(Record(topic, len(partition), arrived_ms, partition=number, after=after))

    def _numbers(self, topic: str) -> range:
        return range(1 if topic in self._narrow else self.partitions)

    def read(self, topic: str, partition: int, offset: int, limit: int) -> list[Record]:
        """Return up to `limit` records of a partition from an offset on."""
        return self._topics[topic, partition][offset : offset + limit]

    def commit(self, role: str, lane: int, batch: Batch) -> None:
        """Write a batch: changed states, the lane record, and its records to their topics."""
        states = self._states[role, lane]
        for key, kept in batch.changed.items():
            if kept is None:
                states.pop(key, None)
            else:
                states[key] = self._codecs[role].encode(kept)
        self._lanes[role, lane] = batch.lane
        for sent in batch.sent:
            self.append(sent.topic, sent.key, encode(sent.event), batch.lane.clock_ms)

    def open(self, role: Role, lane: int, *, ticking: bool = False) -> Task:
        """Return the task of a lane as it was last committed."""
        codec = self._codecs.setdefault(role.name, KeptCodec(role.processor.state_type))
        states = MemoryStates()
        for key, raw in self._states[role.name, lane].items():
            states.put(key, codec.decode(raw))
        return Task(role, lane, states=states, lane=self._lanes.get((role.name, lane)), ticking=ticking)

    def records(self, topic: str) -> Iterator[Record]:
        """Yield the records of a topic, partition by partition."""
        for number in range(self.partitions):
            yield from self._topics[topic, number]
