"""Hands a request's events to Kafka and waits until all of them are there; keeps nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Event as Flag
from threading import Lock, Thread
from typing import Final

import confluent_kafka

from faultlens.codec import Event, encode
from faultlens.kafka import Connection, producer_config
from faultlens.topics import TYPES

# A request is answered within a minute, whatever becomes of the brokers.
DELIVERY_TIMEOUT_MS: Final = 30_000
_MARGIN_S: Final = 5.0
_POLL_S: Final = 0.5


class _Count:
    """Counts deliveries of one request."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._lock = Lock()
        self._failed = False
        self._there = 0
        self.done = Flag()

    def told(self, error: object, _message: object) -> None:
        with self._lock:
            self._there += 1
            self._failed = self._failed or error is not None
            if self._there >= self._wanted:
                self.done.set()

    @property
    def is_good(self) -> bool:
        return self.done.is_set() and not self._failed


class KafkaPublisher:
    """One idempotent producer for all requests; a thread of its own hears of deliveries."""

    def __init__(self, connection: Connection, *, timeout_ms: int = DELIVERY_TIMEOUT_MS) -> None:
        config = producer_config(connection) | {"delivery.timeout.ms": timeout_ms}
        self._timeout_s = timeout_ms / 1_000
        self._producer = confluent_kafka.Producer(config)
        self._closing = Flag()
        self._thread = Thread(target=self._hear, name="deliveries", daemon=True)
        self._thread.start()

    def publish(self, events: Sequence[Event]) -> bool:
        """Return whether all events have surely arrived; if not, some may have."""
        count = _Count(len(events))
        for event in events:
            try:
                on_delivery = partial(count.told)
                self._producer.produce(TYPES[event.type].topic, encode(event), event.subject, on_delivery=on_delivery)
            except (BufferError, confluent_kafka.KafkaException):
                return False
        count.done.wait(self._timeout_s + _MARGIN_S)
        return count.is_good

    def close(self) -> None:
        """Wait for what is under way, no longer than it may take."""
        self._producer.flush(self._timeout_s)
        self._closing.set()
        self._thread.join(_MARGIN_S)

    def _hear(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(_POLL_S)
