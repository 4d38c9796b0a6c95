"""One event that a person waits for, straight to the brokers: no spool, and an error where they do not take it."""

from __future__ import annotations

from faultlens.codec import Event
from faultlens.errors import WorldError
from faultlens.kafka import Connection


def publish(connection: Connection, event: Event) -> None:
    """Send the event and wait until the brokers have it; WorldError if they do not take it."""
    from producers.delivery.kafka import KafkaBroker  # noqa: PLC0415 - needs the Kafka client
    from producers.delivery.outbox import Parcel  # noqa: PLC0415

    if KafkaBroker(connection).publish([Parcel(event, event.time_ms)]) != 1:
        raise WorldError(f"the brokers at {connection.brokers} did not take it: say it again")
