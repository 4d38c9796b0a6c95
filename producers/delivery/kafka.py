"""The brokers as an outbox sees them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import confluent_kafka

from faultlens.kafka import Connection, producer_config
from faultlens.kafka_words import Complaints
from producers.delivery.outbox import Parcel

DELIVERY_TIMEOUT_MS: Final = 60_000
_MARGIN_S: Final = 5.0


class KafkaBroker:
    """An idempotent producer that waits for all replicas; a record that has not arrived in time has not arrived."""

    def __init__(self, connection: Connection, *, timeout_ms: int = DELIVERY_TIMEOUT_MS) -> None:
        self._timeout_s = timeout_ms / 1_000
        self.complaints = Complaints()
        more = {"delivery.timeout.ms": timeout_ms, "linger.ms": 20, "error_cb": self.complaints}
        self._producer = confluent_kafka.Producer(producer_config(connection) | more)

    def publish(self, records: Sequence[Parcel]) -> int:
        """Hand the records over in their order; return how many of the first ones have surely arrived."""
        arrived = [False] * len(records)

        def told(number: int, error: confluent_kafka.KafkaError | None, _message: object) -> None:
            arrived[number] = error is None

        for number, record in enumerate(records):
            try:
                self._producer.produce(record.topic, record.value, record.key, on_delivery=partial(told, number))
            except (BufferError, confluent_kafka.KafkaException):
                break
        self._producer.flush(self._timeout_s + _MARGIN_S)
        return next((number for number, there in enumerate(arrived) if not there), len(arrived))
