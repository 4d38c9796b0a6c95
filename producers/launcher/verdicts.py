"""The verdict on an attempt, from those that the processors write on Kafka."""

from __future__ import annotations

from threading import Event as Flag
from threading import Thread
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
ASK_AGAIN_S: Final = 1.0
# Brokers that have not answered so long after the end of a job are taken for away.
AWAY_S: Final = 5.0
# By how much the clocks of this machine and of the brokers may differ.
CLOCKS_MS: Final = 60_000
# Contract, retry advice: that a job is not to be run again is waited for until it is final: the window, and a minute.
FINAL_S: Final = 360.0
_TYPES: Final = {name: kind for name, kind in TYPES.items() if kind.data is JobAttributed}


class KafkaVerdicts:
    """Reads `attributions` from `since_ms` on; says nothing where no verdict comes within `wait_s`.

    The brokers are asked beside the job, which does not wait for them, until they answer.
    """

    def __init__(self, connection: Connection, *, wait_s: float, since_ms: int) -> None:
        self._wait_s, self._since_ms = wait_s, since_ms - CLOCKS_MS
        self._decode = Decoder(_TYPES).decode
        self._consumer = confluent_kafka.Consumer(consumer_config(connection, "faultlens-launcher"))
        self._placed, self._closing = Flag(), Flag()
        self._placing = Thread(target=self._place, name="verdicts", daemon=True)
        self._placing.start()

    def _place(self) -> None:
        """Begin in every partition where the job did; without a group, since each launcher reads for itself."""
        while not self._closing.is_set() and not (places := self._beginnings()):
            self._closing.wait(ASK_AGAIN_S)
        if not self._closing.is_set():
            self._consumer.assign(places)
            self._placed.set()

    def _beginnings(self) -> list[confluent_kafka.TopicPartition]:
        """Return where to read from in each partition; nothing while the brokers do not answer."""
        try:
            told = self._consumer.list_topics(ATTRIBUTIONS, timeout=ASK_AGAIN_S).topics[ATTRIBUTIONS]
            moments = [
                confluent_kafka.TopicPartition(ATTRIBUTIONS, number, self._since_ms) for number in told.partitions
            ]
            return list(self._consumer.offsets_for_times(moments, timeout=ASK_AGAIN_S)) if moments else []
        except (confluent_kafka.KafkaException, KeyError):
            return []

    def tell(self, event: Event) -> None:
        """Hear nothing: the processors read what was sent."""

    def verdict(self, job_id: str, attempt: int, *, decides: bool) -> JobAttributed | None:
        """Return the newest verdict on the attempt once one has come, or None. A job does not wait long for one that
        decides nothing."""
        found: JobAttributed | None = None
        began = monotonic()
        wait_s = self._wait_s if decides else min(AWAY_S, self._wait_s)
        deadline = began + wait_s
        self._placed.wait(min(AWAY_S, wait_s) if decides else 0)
        while self._placed.is_set() and (left_s := deadline - monotonic()) > 0:
            message = self._consumer.poll(min(left_s, 1.0))
            if message is None or message.error() or message.key() != job_id.encode():
                continue
            said = self._read(message.value() or b"")
            if said is None or (said.job_id, said.attempt, said.loss) != (job_id, attempt, None):
                continue
            first, found = found is None, said if found is None or said.revision > found.revision else found
            if decides and found.retry.advice == "do_not_retry" and found.basis != "assumed" and not is_sure(found):
                deadline = began + FINAL_S
            elif first or found.status != "provisional" or deadline > began + wait_s:
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
        self._closing.set()
        self._placing.join(2 * ASK_AGAIN_S)
        self._consumer.close()
