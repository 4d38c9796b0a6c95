"""Dead letters on Kafka: read them, find the whole of one that was cut, send records again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from faultlens.codec import Decoder
from faultlens.errors import InvalidEventError, WorldError
from faultlens.kafka import DELIVERY_TIMEOUT_MS, Connection, producer_config
from faultlens.kafka_words import explained
from faultlens.topics import DEAD_LETTERS
from sinks.kafka_reading import Reader
from sinks.letters import Letter, Obstacle, headers_again, is_whole, letter_of, obstacle

GROUP: Final = "faultlens-dead-letters"
# librdkafka's RD_KAFKA_PARTITION_UA: the partitioner decides.
PARTITION_BY_KEY: Final = -1


def letters_on(reader: Reader) -> Iterator[Letter]:
    """Yield the letters on the topic; what is none that can be read is left out. WorldError: no broker answers."""
    decoder = Decoder()
    for place, extent in sorted(reader.extents([DEAD_LETTERS]).items()):
        for record in reader.read(place, extent.low, extent.high):
            try:
                letter = letter_of(decoder.decode(record.value or b""), record.key)
            except InvalidEventError:
                continue
            if letter is not None:
                yield letter


def sendable(
    letters: Iterable[Letter], reader: Reader, *, again: bool
) -> tuple[list[tuple[Letter, bytes]], Counter[Obstacle]]:
    """Return the letters that can be sent again with the whole of their records, and how many cannot and why."""
    ready: list[tuple[Letter, bytes]] = []
    left_out: Counter[Obstacle] = Counter()
    for letter in letters:
        why = obstacle(letter, again=again)
        value = None if why else _whole(letter, reader)
        if value is not None:
            ready.append((letter, value))
        else:
            left_out[why or "cut"] += 1
    return ready, left_out


def _whole(letter: Letter, reader: Reader) -> bytes | None:
    """Return the record's bytes, from its own topic where the letter has only their beginning."""
    if not letter.is_cut:
        return letter.value
    for record in reader.read((letter.topic, letter.partition), letter.offset, letter.offset + 1):
        if record.offset == letter.offset and is_whole(letter, record.value or b""):
            return record.value
    return None


class Resender:
    """Sends the bytes of records to their topics once more, with key and headers."""

    def __init__(self, connection: Connection) -> None:
        self._brokers = connection.brokers
        self._producer = Producer(producer_config(connection))

    def send(self, ready: Iterable[tuple[Letter, bytes]]) -> int:
        """Send them and return how many were delivered. WorldError: not all of them; it says how many were."""
        delivered, failed = 0, ""

        def told(error: KafkaError | None, _: Message) -> None:
            nonlocal delivered, failed
            delivered += error is None
            failed = failed or ("" if error is None else explained(error))

        for letter, value in ready:
            # A record without a key had no partition of its own to be in; it goes where it was.
            partition = PARTITION_BY_KEY if letter.key is not None else letter.partition
            self._producer.produce(
                letter.topic, value, letter.key, partition, headers=headers_again(letter), on_delivery=told
            )
            self._producer.poll(0)
        left = self._producer.flush(2 * DELIVERY_TIMEOUT_MS / 1000)
        if failed or left:
            raise WorldError(f"{delivered} records were sent, then {self._brokers} failed: {failed or 'no answer'}")
        return delivered
