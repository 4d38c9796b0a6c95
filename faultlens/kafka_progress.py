"""How far consumer groups have come in what they read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from faultlens.clock import monotonic_s
from faultlens.errors import WorldError
from faultlens.kafka import Connection, client_config, consumer_config

_ANSWER_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 60.0
_READ_SECONDS: Final = 0.1

Place = tuple[str, int]


class GroupProgress:
    """Asks the brokers how far groups are. WorldError where they do not answer."""

    def __init__(self, connection: Connection, groups: Mapping[str, Sequence[Place]]) -> None:
        """`groups`: what each group reads, as topics with partition numbers."""
        self._client = AdminClient(client_config(connection))
        self._groups = groups
        config = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
        self._reader = Consumer(consumer_config(connection, "faultlens-progress") | config)

    def behind(self) -> set[tuple[str, Place]]:
        """Return which groups have records to read, and where.

        Offsets alone do not tell: transactions leave markers behind, which count and are never read.
        """
        until_s = monotonic_s() + _PATIENCE_SECONDS
        while True:
            try:
                return self._with_records(list(self._gaps()))
            except KafkaException as error:
                # A broker that goes takes the answers it owes with it; another one takes its place.
                if monotonic_s() > until_s:
                    raise WorldError(f"how far the groups are cannot be told: {error.args[0].str()}") from None

    def close(self) -> None:
        """Leave the brokers alone."""
        self._reader.close()

    def _gaps(self) -> Iterator[tuple[str, Place, int]]:
        """Yield what lies between what a group has committed and the end: group, place, offset to look at."""
        ends = self._ends()
        for group, places in self._groups.items():
            for place, offset in self._committed(group, places):
                if ends[place] > max(0, offset):
                    yield group, place, max(0, offset)

    def _ends(self) -> dict[Place, int]:
        places = sorted({place for read in self._groups.values() for place in read})
        asked = {TopicPartition(*place): OffsetSpec.latest() for place in places}  # type: ignore[no-untyped-call]
        answers = self._client.list_offsets(asked, request_timeout=_ANSWER_SECONDS)
        return {(at.topic, at.partition): answer.result(_ANSWER_SECONDS).offset for at, answer in answers.items()}

    def _committed(self, group: str, places: Sequence[Place]) -> Iterator[tuple[Place, int]]:
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(*place) for place in places])
        answer = self._client.list_consumer_group_offsets([asked], request_timeout=_ANSWER_SECONDS)[group]
        for found in answer.result(_ANSWER_SECONDS).topic_partitions:
            yield (found.topic, found.partition), found.offset

    def _with_records(self, gaps: list[tuple[str, Place, int]]) -> set[tuple[str, Place]]:
        """Return which of the gaps hold a record: a group each, since two may read the same partition."""
        found: set[tuple[str, Place]] = set()
        for group in {group for group, _, _ in gaps}:
            offsets = {place: offset for of, place, offset in gaps if of == group}
            found |= {(group, place) for place in self._readable(offsets)}
        return found

    def _readable(self, offsets: Mapping[Place, int]) -> set[Place]:
        """Return where there is a committed record from the offset on."""
        self._reader.assign([TopicPartition(*place, offset) for place, offset in offsets.items()])
        readable: set[Place] = set()
        over: set[Place] = set()
        while len(readable | over) < len(offsets):
            for message in self._reader.consume(500, _READ_SECONDS):
                place = message.topic() or "", message.partition() or 0
                error = message.error()
                if error is None:
                    readable.add(place)
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes begin so
                    over.add(place)
                else:
                    raise KafkaException(error)
        return readable
