"""Asking the brokers which topics there are for us; and the sentence where nobody answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Thread
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, TopicMetadata  # type: ignore[attr-defined]
from stamina import RetryingCaller

from faultlens.errors import WorldError
from faultlens.kafka_words import Complaints

ASK_SECONDS: Final = 15.0


class Asking:
    """Asks through a client whose `error_cb` is `complaints`. WorldError where the brokers do not answer."""

    def __init__(self, client: AdminClient | Consumer, brokers: str, complaints: Complaints) -> None:
        self._client: Any = client
        self._brokers = brokers
        self._complaints = complaints

    def topics(self) -> dict[str, TopicMetadata]:
        """Return the topics that there are for this client, by name."""
        ask = partial(self._client.list_topics, timeout=ASK_SECONDS)
        try:
            known = RetryingCaller(attempts=None, timeout=ASK_SECONDS)(_broke_off, _waited_for, ask)
        except KafkaException as error:
            raise self.unanswered(error) from None
        return dict(known.topics)

    def demanded(self, topics: Sequence[str]) -> dict[str, TopicMetadata]:
        """Return the topics that there are; WorldError unless all of `topics` are among them."""
        known = self.topics()
        missing = [topic for topic in topics if topic not in known]
        if missing:
            names = ", ".join(missing)
            raise WorldError(f"the brokers at {self._brokers} have no topic {names} for us: `faultlens topics create`")
        return known

    def unanswered(self, error: KafkaException) -> WorldError:
        """Return what to raise where a call to the brokers failed with `error`."""
        self._client.poll(0)  # only now is said why
        why = self._complaints.behind(error.args[0])
        return WorldError(f"the brokers at {self._brokers} do not answer: {why}")


def _broke_off(error: Exception) -> bool:
    """Return whether the broker that was asked went away meanwhile: another one may answer."""
    return isinstance(error, KafkaException) and error.args[0].code() == KafkaError._TRANSPORT  # noqa: SLF001 - so it is called


def _waited_for(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or raise what it raises. A signal ends the wait, which it would not within the call:
    that is the client library's."""
    answer: Future[Any] = Future()

    def ask() -> None:
        try:
            answer.set_result(call())
        except Exception as error:  # noqa: BLE001 - raised again for who waits
            answer.set_exception(error)

    Thread(target=ask, name="asking", daemon=True).start()
    return answer.result()
