"""The verdict on an attempt, from those that the processors write on Kafka."""

from __future__ import annotations

from time import monotonic
from typing import Final

import confluent_kafka

from faultlens.codec import Decoder, Event
from faultlens.errors import InvalidEventError
from faultlens.events import JobAttributed
from faultlens.kafka import Connection, consumer_config
from faultlens.topics import ATTRIBUTIONS, TYPES
from producers.launcher.retrying import is_sure

# After the first word this much more is waited for: nodes answer within a second or two, and may know better.
SETTLE_S: Final = 5.0
# Contract, retry advice: that a job is not to be run again is waited for until it is final: the window, and a minute.
FINAL_S: Final = 360.0
_TYPES: Final = {name: kind for name, kind in TYPES.items() if kind.data is JobAttributed}


class KafkaVerdicts:
    """Reads `attributions` from when it was made; says nothing where no verdict comes within `wait_s`."""

    def __init__(self, connection: Connection, *, wait_s: float) -> None:
        self._wait_s = wait_s
        self._decode = Decoder(_TYPES).decode
        self._consumer = confluent_kafka.Consumer(consumer_config(connection, "faultlens-launcher"))
        self._is_placed = False
        self._place(5.0)

    def _place(self, timeout_s: float) -> None:
        """Begin at the end of every partition; without a group, since each launcher reads for itself."""
        try:
            told = self._consumer.list_topics(ATTRIBUTIONS, timeout=timeout_s).topics[ATTRIBUTIONS]
        except (confluent_kafka.KafkaException, KeyError):
            return
        places = [
            confluent_kafka.TopicPartition(ATTRIBUTIONS, number, confluent_kafka.OFFSET_END)
            for number in told.partitions
        ]
        self._consumer.assign(places)
        self._is_placed = bool(places)

    def tell(self, event: Event) -> None:
        """Hear nothing: the processors read what was sent."""

    def verdict(self, job_id: str, attempt: int) -> JobAttributed | None:
        """Return the newest verdict on the attempt once one has come, or None."""
        found: JobAttributed | None = None
        began = monotonic()
        deadline = began + self._wait_s
        while self._is_placed and (left_s := deadline - monotonic()) > 0:
            message = self._consumer.poll(min(left_s, 1.0))
            if message is None or message.error() or message.key() != job_id.encode():
                continue
            said = self._read(message.value() or b"")
            if said is None or (said.job_id, said.attempt, said.loss) != (job_id, attempt, None):
                continue
            first, found = found is None, said if found is None or said.revision > found.revision else found
            if found.retry.advice == "do_not_retry" and found.basis != "assumed" and not is_sure(found):
                deadline = began + FINAL_S
            elif first or found.status != "provisional" or deadline > began + self._wait_s:
                deadline = min(deadline, monotonic() + SETTLE_S)
        return found if found is not None and found.status != "withdrawn" else None

    def _read(self, value: bytes) -> JobAttributed | None:
        try:
            data = self._decode(value).data
        except InvalidEventError:
            return None
        return data if isinstance(data, JobAttributed) else None

    def close(self) -> None:
        """Leave the brokers."""
        self._consumer.close()
