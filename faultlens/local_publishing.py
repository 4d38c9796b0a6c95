"""One event that a person waits for, straight to the brokers: no spool, and an error where they do not take it."""

from __future__ import annotations

from typing import Final

from faultlens.codec import Event
from faultlens.errors import WorldError
from faultlens.kafka import Connection

# A person waits: after this they are told that it did not arrive.
TIMEOUT_MS: Final = 20_000


def publish(connection: Connection, event: Event) -> None:
    """Send the event and wait until the brokers have it; WorldError if they do not take it."""
    from producers.delivery.kafka import KafkaBroker  # noqa: PLC0415 - needs the Kafka client
    from producers.delivery.outbox import Parcel  # noqa: PLC0415

    broker = KafkaBroker(connection, timeout_ms=TIMEOUT_MS)
    if broker.publish([Parcel(event, event.time_ms)]) != 1:
        why = broker.complaints.behind()
        raise WorldError(f"the brokers at {connection.brokers} did not take it, say it again: {why}")
