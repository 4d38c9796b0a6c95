"""Whether workers are done with all that lies in the log, seen from what their lanes write of themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from faultlens.clock import monotonic_s
from faultlens.errors import WorldError
from faultlens.kafka import Connection, consumer_config
from faultlens.kafka_topics import state_topic

_ANSWER_SECONDS: Final = 5.0
_PATIENCE_SECONDS: Final = 120.0
_READ_SECONDS: Final = 0.02
_READ_AT_ONCE: Final = 10_000

Place = tuple[str, int]
# What a record of a changelog says of its lane: the next offset of each topic; None: it is about something else.
Told = Callable[[bytes | None, bytes | None], Mapping[str, int] | None]


@dataclass(frozen=True)
class Behind:
    """A record that waits: for `role`, or, where that is empty, for the transaction that wrote it to end.

    `offset` -1: no broker says whether there is one.
    """

    role: str
    place: Place
    offset: int

    def __str__(self) -> str:
        topic, number = self.place
        if self.role:
            return f"the role {self.role} has records of {topic}/{number} to read"
        if self.offset < 0:
            return f"no broker says up to where {topic}/{number} has records"
        return f"{topic}/{number} has records up to {self.offset} that nobody can read yet"


class LaneProgress:
    """Follows the log, what workers write to it and how far their lanes say they are, without joining their groups.

    What a lane has read, written and remembered is one transaction, so that no record is ever on its way unseen.
    WorldError where the brokers do not answer.
    """

    def __init__(
        self, connection: Connection, reads: Mapping[str, Sequence[str]], partitions: Mapping[str, int], told: Told
    ) -> None:
        """`reads`: the topics of each role; `partitions`: how many each topic has."""
        self._reads = reads
        self._told = told
        self._next: dict[str, dict[Place, int]] = {role: {} for role in reads}
        self._reached: dict[Place, int] = {}
        self._ends: dict[Place, int] = {}
        self._role_of = {state_topic(role): role for role in reads}
        self._inputs = _places({topic for topics in reads.values() for topic in topics}, partitions)
        states = _places(self._role_of, partitions)
        self._places = [*states, *self._inputs]
        often = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
        self._reader = Consumer(consumer_config(connection, "faultlens-progress") | often)
        # Asks for the ends of what is written, also by transactions that are not over.
        unread = {"isolation.level": "read_uncommitted"}
        self._asker = Consumer(consumer_config(connection, "faultlens-progress") | unread)
        self._reader.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in states])
        self._read_to_the_ends(states)
        self._reader.incremental_assign([TopicPartition(*place, self._done(place)) for place in self._inputs])
        self._read_to_the_ends(self._inputs)

    def behind(self) -> Behind | None:
        """Return a record that waits; None: all are done with everything, and nothing more follows from that."""
        self._read()
        return self._waiting() or self._unread()

    def close(self) -> None:
        """Leave the brokers alone."""
        self._reader.close()
        self._asker.close()

    def _done(self, place: Place) -> int:
        """Return up to where all who read a partition are done with it."""
        topic, _ = place
        return min(self._next[role].get(place, 0) for role, topics in self._reads.items() if topic in topics)

    def _waiting(self) -> Behind | None:
        for role, topics in self._reads.items():
            done = self._next[role]
            for place, reached in self._reached.items():
                if place[0] in topics and done.get(place, 0) < reached:
                    return Behind(role, place, done.get(place, 0))
        return None

    def _unread(self) -> Behind | None:
        """Return where more is written than was read here. Whoever is done has written before it said so."""
        ends = self._written()
        for place in self._places:
            end = ends.get(place, -1)
            if self._ends.get(place) != end:
                return Behind("", place, end)
        return None

    def _written(self) -> dict[Place, int]:
        """Return up to where each partition is written, without those of which no broker says so."""
        self._asker.poll(0)  # what a client says of its brokers waits in memory until it is polled
        asked = [TopicPartition(*place, OFFSET_END) for place in self._places]
        try:
            answers = self._asker.offsets_for_times(asked, timeout=_ANSWER_SECONDS)
        except KafkaException:
            answers = []
        ends = {(answer.topic, answer.partition): answer.offset for answer in answers if answer.error is None}
        if len(ends) < len(asked):
            self._ask_for_leaders()
        return ends

    def _ask_for_leaders(self) -> None:
        """Learn who leads which partition: the client asks one that led it for a quarter of an hour by itself."""
        with suppress(KafkaException):
            self._asker.list_topics(timeout=_ANSWER_SECONDS)

    def _read_to_the_ends(self, places: Iterable[Place]) -> None:
        left, until_s = set(places), monotonic_s() + _PATIENCE_SECONDS
        while left:
            if monotonic_s() > until_s:
                topic, number = min(left)
                raise WorldError(f"{topic}/{number} is silent: how far workers are cannot be told")
            self._read()
            left -= self._ends.keys()

    def _read(self) -> None:
        """Take note of what has come since the last time; wait a moment for it."""
        message = self._reader.poll(_READ_SECONDS)
        while message is not None:
            self._take(message)
            for more in self._reader.consume(_READ_AT_ONCE, 0.0):
                self._take(more)
            message = self._reader.poll(0.0)

    def _take(self, message: Message) -> None:
        topic, number, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
        error = message.error()
        if error is not None:
            # Anything else the client sees to by itself, or nothing more is heard.
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes begin so
                self._ends[topic, number] = offset
            return
        role = self._role_of.get(topic)
        if role is None:
            self._reached[topic, number] = offset + 1
        elif told := self._told(message.key(), message.value()):
            self._next[role].update({(read, number): next_ for read, next_ in told.items()})


def _places(topics: Iterable[str], partitions: Mapping[str, int]) -> list[Place]:
    return [(topic, number) for topic in sorted(topics) for number in range(partitions[topic])]
