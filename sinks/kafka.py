"""The log and the dead letters on Kafka: the only module of this package that knows its client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from threading import Thread
from typing import Final

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from faultlens.errors import WorldError
from faultlens.kafka import DELIVERY_TIMEOUT_MS, Connection, consumer_config, producer_config
from faultlens.kafka_asking import ASK_SECONDS, Asking
from faultlens.kafka_logs import KAFKA_LOG
from faultlens.kafka_words import Complaints, explained
from faultlens.topics import DEAD_LETTERS
from sinks.log import Holding, Place, Taken

LEAVE_SECONDS: Final = 10.0
# After so long without a sign of life the partitions of a member go to others. Heartbeats have a thread of their own.
SESSION_TIMEOUT_MS: Final = 15_000
CONTENT_TYPE: Final[list[tuple[str, str | bytes | None]]] = [("content-type", b"application/cloudevents+json")]
# What no waiting mends: https://github.com/confluentinc/librdkafka/blob/master/INTRODUCTION.md (error codes).
_LASTING: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - librdkafka's own codes are named so
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._SSL,  # noqa: SLF001
    }
)


class KafkaLog:
    """Topics read by a member of a consumer group. `expired` counts offsets that were removed before they were read.

    Partitions move one by one (cooperative assignment): what stays is read on without a break. A member with a name of
    its own (`instance`) that comes back within the session timeout finds its partitions as it left them.
    """

    def __init__(
        self, connection: Connection, topics: Sequence[str], group: str, *, instance: str | None = None
    ) -> None:
        config = consumer_config(connection, group) | {
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": 65_536,
            "fetch.wait.max.ms": 100,
            "error_cb": self._failed,
        }
        if instance is not None:
            config["group.instance.id"] = instance
        self._brokers = connection.brokers
        self._failure: KafkaError | None = None
        self._complaints = Complaints()
        self._epoch = 0
        self._held: dict[Place, Holding] = {}
        self._next: dict[Place, int] = {}
        self._fresh: set[Place] = set()
        self._committed: dict[Place, int] = {}
        self._paused = False
        self.expired: Counter[str] = Counter()
        self._consumer = Consumer(config)
        # A topic that is missing is never read, and nobody told.
        Asking(self._consumer, connection.brokers, self._complaints).demanded(topics)
        self._consumer.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    @property
    def held(self) -> Mapping[Place, Holding]:
        """The partitions that are ours now."""
        return self._held

    def poll(self, limit: int, timeout_s: float) -> list[Taken]:
        """Return up to `limit` records that come within the time. WorldError: we may not, or cannot, go on."""
        try:
            messages = self._consumer.consume(limit, timeout_s)
        except KafkaException as error:
            raise self._world_error(error.args[0]) from None
        if self._failure is not None:
            raise self._world_error(self._failure)
        return [record for message in messages if (record := self._record(message)) is not None]

    def pause(self) -> None:
        """Hand out nothing until `resume`."""
        self._paused = True
        self._consumer.pause([TopicPartition(*place) for place in self._held])

    def resume(self) -> None:
        """Go on where the log was paused."""
        self._paused = False
        self._consumer.resume([TopicPartition(*place) for place in self._held])

    def commit(self, following: Mapping[Place, int]) -> None:
        """Commit without waiting for the answer; a failed commit is made good by the next, or by `close`."""
        self._committed |= following
        if following:
            self._consumer.commit(offsets=_offsets(following), asynchronous=True)

    def lags(self) -> Mapping[Place, int]:
        """Return how many offsets of each partition have not been handed out, as of the last answer of its broker."""
        found = {}
        for place, following in self._next.items():
            _, high = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
            if high >= 0:
                found[place] = max(0, high - following)
        return found

    def close(self) -> None:
        """Leave the group; what was committed last is committed once more, with an answer.

        Brokers that do not answer are not waited for: what was not committed is read again, and gives the same rows.
        """
        leaving = Thread(target=self._leave, name="leaving", daemon=True)
        leaving.start()
        leaving.join(LEAVE_SECONDS)

    def _leave(self) -> None:
        mine = {place: offset for place, offset in self._committed.items() if place in self._held}
        try:
            if mine:
                self._consumer.commit(offsets=_offsets(mine), asynchronous=False)
        except KafkaException:
            KAFKA_LOG.warning("the last offsets could not be committed")
        finally:
            self._consumer.close()

    def _record(self, message: Message) -> Taken | None:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                self._reached(message)
            elif error.fatal() or error.code() in _LASTING:
                raise self._world_error(error)
            return None
        place = (message.topic() or "", message.partition() or 0)
        if place not in self._held:
            return None
        offset = message.offset() or 0
        if place in self._fresh:
            self._begin(place, offset)
        self._next[place] = offset + 1
        return taken_of(message)

    def _reached(self, message: Message) -> None:
        """Note the end of a partition: behind the last record there may be markers of transactions."""
        place = (message.topic() or "", message.partition() or 0)
        if place in self._held:
            self._next[place] = max(message.offset() or 0, self._next.get(place, 0))

    def _begin(self, place: Place, offset: int) -> None:
        """Look at the first record of an assignment: is it where we wanted to begin?"""
        self._fresh.discard(place)
        holding = self._held[place]
        if offset > holding.start >= 0:
            low, _ = self._consumer.get_watermark_offsets(TopicPartition(*place), ASK_SECONDS)
            if low > holding.start:
                self.expired[place[0]] += low - holding.start
                self._held[place] = holding._replace(start=low)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._epoch += 1
        committed = consumer.committed(partitions, ASK_SECONDS) if partitions else []
        for partition in committed:
            if partition.offset < 0:
                partition.offset, _ = consumer.get_watermark_offsets(partition, ASK_SECONDS)
            place = (partition.topic, partition.partition)
            self._held[place] = Holding(self._epoch, partition.offset)
            self._next[place] = partition.offset
            self._fresh.add(place)
        consumer.incremental_assign(committed)
        if self._paused:
            consumer.pause(committed)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            place = (partition.topic, partition.partition)
            for kept in (self._held, self._next, self._committed):
                kept.pop(place, None)
            self._fresh.discard(place)
        consumer.incremental_unassign(partitions)

    def _failed(self, error: KafkaError) -> None:
        self._complaints(error)
        if error.fatal() or error.code() in _LASTING:
            self._failure = error

    def _world_error(self, error: KafkaError) -> WorldError:
        return WorldError(f"the brokers at {self._brokers}: {explained(error)}")


class KafkaLetters:
    """Dead letters on their topic."""

    def __init__(self, connection: Connection) -> None:
        self._brokers = connection.brokers
        self._producer = Producer(producer_config(connection))

    def send(self, letters: Sequence[tuple[bytes, bytes]]) -> None:
        """Send them and return when every one is confirmed; WorldError names the first that is not."""
        failed: list[str] = []

        def told(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(explained(error))

        for key, value in letters:
            while True:
                try:
                    self._producer.produce(DEAD_LETTERS, value, key, headers=CONTENT_TYPE, on_delivery=told)
                    break
                except BufferError:  # its queue is full: let some of it be delivered
                    self._producer.poll(1.0)
        left = self._producer.flush(2 * DELIVERY_TIMEOUT_MS / 1000)
        if failed or left:
            raise WorldError(f"dead letters cannot be sent to {self._brokers}: {failed[0] if failed else 'no answer'}")

    def close(self) -> None:
        """Let go of the connection; nothing waits."""
        self._producer.flush(1.0)


def _offsets(following: Mapping[Place, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in following.items()]


def taken_of(message: Message) -> Taken:
    """Return the record in a message without an error."""
    kind, at_ms = message.timestamp()
    headers = tuple((str(name), _bytes(value)) for name, value in list(message.headers() or ()))
    return Taken(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        0 if kind == TIMESTAMP_NOT_AVAILABLE else at_ms,
        message.value(),
        message.key(),
        headers,
    )


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
