"""A lane's way out: its changelog read back, and batches written in one transaction each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import sleep
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from faultlens.clock import monotonic_s
from faultlens.codec import encode
from faultlens.errors import WorldError
from faultlens.kafka import Connection, consumer_config, producer_config
from faultlens.topics import CONTEXT
from streams.live.changelog import Change
from streams.runtime.records import Sent

_OPEN_SECONDS: Final = 60.0
_COMMIT_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 40.0
# Before each time that a batch is written again; each may take as long as its transaction. Together they are longer
# than another broker takes to step in, and shorter than what the watchdog allows.
_WAIT_SECONDS: Final = (0.1, 0.5, 1.0, 2.0)
_READ_AT_ONCE: Final = 5_000
# Several lanes are opened at a time, and the client's own 64 MiB would be held for each.
_READ_AHEAD_KBYTES: Final = 16 * 1024
# A read waits so long for as many records as it may return.
_READ_SECONDS: Final = 0.05
_SILENT_SECONDS: Final = 60.0
_WITHOUT_LEADER: Final = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
_HEADERS: Final = [("content-type", b"application/cloudevents+json")]


class Ledger:
    """Where one lane's batches are written. Opening it ends whoever wrote there before (`transactional_id`)."""

    def __init__(self, connection: Connection, transactional_id: str, changelog: tuple[str, int], lanes: int) -> None:
        """`changelog`: topic and partition of the lane's states; `lanes`: how many copies of a context there are."""
        self._connection = connection
        self._topic, self._partition = changelog
        self._lanes = lanes
        self._id = transactional_id
        self.retries = 0
        self._producer = self._new_producer()
        # What was found, until the first batch says under which key it is told how far the lane is; then that.
        self._found: dict[bytes, bytes] = {}
        self._mark: bytes | None = None

    def _new_producer(self) -> Producer:
        return Producer(producer_config(self._connection, transactional_id=self._id))

    def open(self) -> dict[bytes, bytes]:
        """Fence the former owner, end what it left open, and return the latest record of every key."""
        try:
            self._producer.init_transactions(_OPEN_SECONDS)
            self._found = self._read()
        except KafkaException as error:
            raise _failed(f"lane {self._id} cannot be opened", error) from error
        return self._found

    def _read(self) -> dict[bytes, bytes]:
        settings = {"enable.partition.eof": True, "queued.max.messages.kbytes": _READ_AHEAD_KBYTES}
        consumer = Consumer(consumer_config(self._connection, f"{self._id}-state") | settings)
        try:
            end = self._end(consumer)
            consumer.assign([TopicPartition(self._topic, self._partition, OFFSET_BEGINNING)])
            return self._until(consumer, end)
        finally:
            consumer.close()

    def _end(self, consumer: Consumer) -> int:
        """Return the end of the changelog; while its partition has no leader that is asked for again."""
        until_s = monotonic_s() + _OPEN_SECONDS
        place = TopicPartition(self._topic, self._partition)
        while True:
            try:
                _, end = consumer.get_watermark_offsets(place, timeout=_OPEN_SECONDS)
            except KafkaException as error:
                if error.args[0].code() not in _WITHOUT_LEADER or monotonic_s() > until_s:
                    raise
                sleep(_WAIT_SECONDS[0])
            else:
                return int(end)

    def _until(self, consumer: Consumer, end: int) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        heard_s = monotonic_s()
        while monotonic_s() - heard_s < _SILENT_SECONDS:
            messages = consumer.consume(_READ_AT_ONCE, _READ_SECONDS)
            heard_s = monotonic_s() if messages else heard_s
            for message in messages:
                error = message.error()
                if error is None:
                    _put(found, message)
                elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes begin so
                    raise KafkaException(error)
                elif (message.offset() or 0) >= end:
                    return found
        raise WorldError(f"{self._topic}/{self._partition} is silent before its end at {end}")

    def write(self, sent: Iterable[Sent], changes: Iterable[Change]) -> None:
        """Write a batch whole: what is sent, and what changes of the states; the last change says how far the lane is.

        What the brokers refuse for now is written again: the batch is decided, and stays as it is. WorldError: it could
        not be written, or whether it was is not known.
        """
        batch = list(sent), list(changes)
        key, mark = batch[1][-1]
        if self._found:
            self._mark, self._found = self._found.get(key), {}
        for wait_s in (*_WAIT_SECONDS, None):
            try:
                self._transaction(*batch)
                self._producer.poll(0)  # lets the client say what it met
                break
            except KafkaException as error:
                if wait_s is None or not self._may_go_on(error):
                    raise _failed(f"lane {self._id} cannot write its batch", error) from error
                if self._is_there(error, key, mark):
                    break
                self.retries += 1
                sleep(wait_s)
        self._mark = mark

    def _may_go_on(self, error: KafkaException) -> bool:
        return bool(error.args[0].txn_requires_abort()) or _is_out_of_step(error)

    def _is_there(self, error: KafkaException, key: bytes, mark: bytes | None) -> bool:
        """Undo what is left of a batch that failed, and return whether it was written after all.

        A coordinator that comes up after another one may never have heard of the batch, and does not let it be undone
        either; then this client is of no use any more. A new one ends whatever is open, and the changelog tells what
        holds: the batch, what was there before it, or what somebody else has written since.
        """
        if not _is_out_of_step(error):
            try:
                self._ended(self._producer.abort_transaction)
            except KafkaException as refused:
                if not _is_out_of_step(refused):
                    raise _failed(f"lane {self._id} cannot undo its batch", refused) from refused
            else:
                return False
        self._producer = self._new_producer()
        found = self.open().get(key)
        self._found = {}
        if found not in (mark, self._mark):
            raise WorldError(f"lane {self._id} cannot write its batch: somebody else has taken the lane over")
        return found == mark

    def _transaction(self, sent: Iterable[Sent], changes: Iterable[Change]) -> None:
        self._producer.begin_transaction()
        for record in sent:
            self._send(record)
        for key, value in changes:
            self._produce(self._topic, value, key, self._partition)
        self._ended(self._producer.commit_transaction)

    def _ended(self, end: Callable[[float], None]) -> None:
        """Commit or abort; an answer that does not come in time is asked for again."""
        until_s = monotonic_s() + _PATIENCE_SECONDS
        while True:
            try:
                end(_COMMIT_SECONDS)
            except KafkaException as error:
                if not error.args[0].retriable() or monotonic_s() > until_s:
                    raise
            else:
                return

    def _send(self, record: Sent) -> None:
        value, key = encode(record.event), record.key.encode()
        if record.topic != CONTEXT:
            self._produce(record.topic, value, key, None)
            return
        for number in range(self._lanes):
            self._produce(record.topic, value, key, number)

    def _produce(self, topic: str, value: bytes | None, key: bytes, partition: int | None) -> None:
        more: dict[str, Any] = {} if partition is None else {"partition": partition}
        if topic != self._topic:
            more["headers"] = _HEADERS
        while True:
            try:
                self._producer.produce(topic, value=value, key=key, **more)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return


def _put(found: dict[bytes, bytes], message: Message) -> None:
    key, value = message.key() or b"", message.value()
    if value is None:
        found.pop(key, None)
    else:
        found[key] = value


def _is_out_of_step(error: KafkaException) -> bool:
    """Return whether the coordinator knows of no transaction where the client believes in one, or the other way."""
    return bool(error.args[0].code() == KafkaError.INVALID_TXN_STATE)


def _failed(what: str, error: KafkaException) -> WorldError:
    reason: KafkaError = error.args[0]
    return WorldError(f"{what}: {reason.name()}: {reason.str()}")
