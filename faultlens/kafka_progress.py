"""Whether consumer groups have come to the end of what they read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from faultlens.clock import monotonic_s
from faultlens.errors import WorldError
from faultlens.kafka import Connection, consumer_config

_ANSWER_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 120.0
_READ_SECONDS: Final = 0.1

Place = tuple[str, int]


class GroupProgress:
    """Reads on from where groups have committed, without joining them. WorldError where the brokers do not answer."""

    def __init__(self, connection: Connection, groups: Mapping[str, Sequence[Place]]) -> None:
        """`groups`: what each group reads, as topics with partition numbers."""
        few = {"enable.partition.eof": True, "fetch.wait.max.ms": 10, "fetch.message.max.bytes": 4_096}
        self._groups = groups
        self._readers = {group: Consumer(consumer_config(connection, group) | few) for group in groups}

    def behind(self) -> tuple[str, Place, int] | None:
        """Return a group that has records to read, where, and from which offset on; None: all are at the end.

        Offsets alone do not tell: transactions leave markers behind, which count and are never read. And groups give
        each other work while one after the other is asked: all are at the end when nothing has moved in between.
        """
        before: dict[str, list[int]] | None = None
        while True:
            committed: dict[str, list[int]] = {}
            for group in self._groups:
                place, committed[group] = self._asked_again(group)
                if place is not None:
                    return group, *place
            if committed == before:
                return None
            before = committed

    def close(self) -> None:
        """Leave the brokers alone."""
        for reader in self._readers.values():
            reader.close()

    def _asked_again(self, group: str) -> tuple[tuple[Place, int] | None, list[int]]:
        """Return what `_unread` does; a broker that goes takes the answers it owes with it, and another one comes."""
        until_s = monotonic_s() + _PATIENCE_SECONDS
        while True:
            try:
                return self._unread(group)
            except KafkaException as error:
                if monotonic_s() > until_s:
                    raise WorldError(f"how far {group} is cannot be told: {error.args[0].str()}") from None

    def _unread(self, group: str) -> tuple[tuple[Place, int] | None, list[int]]:
        """Return where there is a committed record that the group has not done with, its offset, and what is done."""
        reader = self._readers[group]
        asked = [TopicPartition(*place) for place in self._groups[group]]
        committed = reader.committed(asked, timeout=_ANSWER_SECONDS)
        done = [at.offset for at in committed]
        reader.assign([TopicPartition(at.topic, at.partition, max(0, at.offset)) for at in committed])
        at_end: set[Place] = set()
        until_s = monotonic_s() + _PATIENCE_SECONDS
        while len(at_end) < len(asked):
            if monotonic_s() > until_s:
                raise WorldError(f"how far {group} is cannot be told: the brokers are silent")
            message = reader.poll(_READ_SECONDS)
            if message is None:
                continue
            place = message.topic() or "", message.partition() or 0
            error = message.error()
            if error is None:
                return (place, message.offset() or 0), done
            if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes begin so
                raise KafkaException(error)
            at_end.add(place)
        return None, done
