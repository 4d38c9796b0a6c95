"""Commands from Kafka: each is handed out again until it has been written down."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from faultlens.codec import Decoder
from faultlens.errors import InvalidEventError, WorldError
from faultlens.events import RemediationCommand
from faultlens.kafka import Connection, consumer_config
from faultlens.kafka_asking import Asking
from faultlens.kafka_words import Complaints, explained
from faultlens.topics import REMEDIATION_COMMANDS, TYPES

_AT_ONCE: Final = 100


class KafkaCommands:
    """The topic of commands, read by one group for each actuator. WorldError where nobody answers at the beginning."""

    def __init__(self, connection: Connection, group: str) -> None:
        own = {name: found for name, found in TYPES.items() if found.topic == REMEDIATION_COMMANDS}
        self._decode = Decoder(own).decode
        self._brokers = connection.brokers
        self._complaints = Complaints()
        self._consumer = Consumer(consumer_config(connection, group) | {"error_cb": self._complaints})
        # Who begins is told; an outage later on is waited for.
        Asking(self._consumer, connection.brokers, self._complaints).demanded([REMEDIATION_COMMANDS])
        self._consumer.subscribe([REMEDIATION_COMMANDS])

    def poll(self, timeout_s: float) -> list[RemediationCommand]:
        """Return the commands that come within the time. WorldError: the brokers cannot be read."""
        try:
            messages = self._consumer.consume(_AT_ONCE, timeout_s)
        except KafkaException as error:
            raise self._trouble(error.args[0]) from None
        return [command for message in messages if (command := self._command(message)) is not None]

    def written_down(self) -> None:
        """Let everything that was handed out count as taken."""
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:  # noqa: SLF001 - how the client names it
                raise self._trouble(error.args[0]) from None

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _command(self, message: Message) -> RemediationCommand | None:
        error: Any = message.error()
        if error is not None:
            raise self._trouble(error)
        self._consumer.store_offsets(message)
        try:
            data = self._decode(message.value() or b"").data
        except InvalidEventError:
            return None  # the sink has it among its dead letters
        return data if isinstance(data, RemediationCommand) else None

    def _trouble(self, error: Any) -> WorldError:
        return WorldError(f"commands cannot be read from {self._brokers}: {explained(error)}")
