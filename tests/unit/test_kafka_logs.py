"""What the Kafka client says again and again is written once a minute."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from faultlens.errors import WorldError
from faultlens.kafka import Connection
from faultlens.kafka_asking import Asking
from faultlens.kafka_logs import Seldom
from faultlens.kafka_topics import TopicAdmin
from faultlens.kafka_words import Complaints

NOBODY_THERE = Connection("127.0.0.2:9")  # no other test asks there: what is said once is said in the first


def refused(client: str, after_ms: int) -> str:
    return f"FAIL [{client}] [thrd:a:9/1]: a:9/1: Connect to a:9 failed: refused (after {after_ms}ms in state CONNECT)"


def written(said: list[tuple[float, str]]) -> list[str]:
    times = iter([at_s for at_s, _ in said])
    seldom = Seldom(60.0, lambda: next(times))
    records = [logging.LogRecord("librdkafka", logging.ERROR, "", 0, text, (), None) for _, text in said]
    return [record.getMessage() for record in records if seldom.filter(record)]


def test_the_same_of_another_client_after_another_time_is_not_said_again() -> None:
    assert written([(0.0, refused("x#producer-1", 0)), (1.0, refused("x#consumer-2", 3))]) == [
        refused("x#producer-1", 0)
    ]


def test_what_goes_on_is_said_again_after_a_minute_with_how_often_it_was_held_back() -> None:
    said = [(float(second), refused("x", 0)) for second in range(62)]
    assert written(said) == [refused("x", 0), f"{refused('x', 0)} (and 59 times more before)"]


def test_another_broker_and_another_reason_are_said() -> None:
    others = [refused("x", 0), refused("x", 0).replace("a:9", "b:9"), refused("x", 0).replace("refused", "timed out")]
    assert written([(0.0, text) for text in others]) == others


def test_things_without_end_do_not_fill_the_memory() -> None:
    seldom = Seldom()
    for number in range(2_500):
        assert seldom.filter(logging.LogRecord("x", logging.ERROR, "", 0, f"thing {number}", (), None))
    assert len(seldom._said) <= 1_000


class OneGoesAway:
    """Brokers of which one goes away while it is asked, and another one answers."""

    def __init__(self) -> None:
        self.asked = 0

    def list_topics(self, *, timeout: float) -> SimpleNamespace:
        self.asked += 1
        if self.asked == 1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(topics={"node-events": timeout})

    def poll(self, timeout: float) -> int:
        return 0


def test_a_broker_that_goes_away_while_it_is_asked_is_not_all_of_them() -> None:
    brokers = OneGoesAway()
    known = Asking(brokers, "a,b", Complaints()).topics()  # type: ignore[arg-type]
    assert (list(known), brokers.asked) == (["node-events"], 2)


def test_brokers_that_are_away_are_told_of_in_one_line_with_the_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultlens.kafka_asking.ASK_SECONDS", 1.0)
    with pytest.raises(WorldError, match=r"127\.0\.0\.2:9 do not answer: .*Connection refused$"):
        TopicAdmin(NOBODY_THERE).partitions()
    assert [message.count("Connection refused") for message in caplog.messages] == [1]
