"""Kafka read by who is no member of a group: where partitions stand, and parts of them once more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from faultlens.errors import WorldError
from faultlens.kafka import Connection, consumer_config
from faultlens.kafka_asking import ASK_SECONDS, Asking
from faultlens.kafka_words import Complaints
from sinks.audit import Extent
from sinks.kafka import taken_of
from sinks.log import Place, Taken

_WAIT_S: Final = 0.2
_BATCH: Final = 5_000


class Reader:
    """Reads parts of partitions; committed records only. WorldError where the brokers do not answer.

    `group` is asked for its commits and never joined.
    """

    def __init__(self, connection: Connection, group: str) -> None:
        self._brokers = connection.brokers
        self._complaints = Complaints()
        often = {"enable.partition.eof": True, "error_cb": self._complaints}
        self._consumer = Consumer(consumer_config(connection, group) | often)
        self._asking = Asking(self._consumer, connection.brokers, self._complaints)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def extents(self, topics: Sequence[str]) -> dict[Place, Extent]:
        """Return where each partition of the topics stands, and what the group has committed."""
        known = self._asking.demanded(topics)
        places = [TopicPartition(topic, number) for topic in topics for number in known[topic].partitions]
        try:
            return {(place.topic, place.partition): self._extent(place) for place in self._committed(places)}
        except KafkaException as error:
            raise self._asking.unanswered(error) from None

    def read(self, place: Place, start: int, stop: int) -> Iterator[Taken]:
        """Yield the records from `start` up to but not including `stop`; what was removed already is left out."""
        self._consumer.assign([TopicPartition(*place, start)])
        silent_s = 0.0
        following = start
        while following < stop:
            messages = self._consumer.consume(_BATCH, _WAIT_S)
            silent_s = 0.0 if messages else silent_s + _WAIT_S
            if silent_s > ASK_SECONDS:
                raise WorldError(f"the brokers at {self._brokers} have been silent for {ASK_SECONDS:.0f} s")
            for message in messages:
                following = max(following, self._following(message, stop))
                if message.error() is None and (message.offset() or 0) < stop:
                    yield taken_of(message)

    def _following(self, message: Message, stop: int) -> int:
        error = message.error()
        if error is None:
            return (message.offset() or 0) + 1
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            return stop
        if error.fatal() or not error.retriable():
            raise self._failed(error)
        return 0

    def _committed(self, places: list[TopicPartition]) -> list[TopicPartition]:
        return self._consumer.committed(places, ASK_SECONDS) if places else []

    def _extent(self, committed: TopicPartition) -> Extent:
        low, high = self._consumer.get_watermark_offsets(committed, ASK_SECONDS)
        return Extent(low, high, committed.offset if committed.offset >= 0 else None)

    def _failed(self, error: KafkaError) -> WorldError:
        return WorldError(f"the brokers at {self._brokers}: {self._complaints.behind(error)}")
