"""Time in the log: a record without a value, each second, for every partition that a worker owns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from confluent_kafka import Producer

from faultlens.kafka import Connection, producer_config

EVERY_SECONDS: Final = 1.0
# A tick that comes late says nothing that the next one does not: during an outage they do not pile up.
_TIMEOUT_MS: Final = 2_000


class Ticker:
    """Appends ticks to a role's first topic. What cannot be delivered is counted; a hole is seen by who reads."""

    def __init__(self, connection: Connection, topic: str) -> None:
        config = producer_config(connection) | {
            "enable.idempotence": False,
            "linger.ms": 0,
            "delivery.timeout.ms": _TIMEOUT_MS,
            "compression.type": "none",
        }
        self._topic = topic
        self._producer = Producer(config)
        self.sent = 0
        self.lost = 0

    def tick(self, partitions: Iterable[int]) -> None:
        """Append a tick to each partition, without waiting."""
        for number in partitions:
            try:
                self._producer.produce(self._topic, partition=number, on_delivery=self._delivered)
            except BufferError:
                self.lost += 1
        self._producer.poll(0)

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.sent += 1
        else:
            self.lost += 1
