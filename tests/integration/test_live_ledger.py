"""A lane's log on a real Kafka: whole batches or nothing, and whoever takes over ends whoever had it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from faultlens import topics
from faultlens.codec import Event, event_of
from faultlens.errors import WorldError
from faultlens.events import NodeFault
from faultlens.internal import ContextChange
from faultlens.kafka import Connection
from faultlens.murmur2 import partition_of
from streams.live.transactions import Ledger
from streams.runtime.records import Sent
from tests.kafka.cluster import Cluster
from tests.kafka.living import consumed, fresh_topics

ck: Any = pytest.importorskip("confluent_kafka", reason="the Kafka client is not installed (extra `stream`)")
pytestmark = [pytest.mark.kafka]

PARTITIONS = 3
STATES = "state-node"


@pytest.fixture(scope="module", autouse=True)
def _topics(kafka: Cluster) -> None:
    fresh_topics(kafka, PARTITIONS)


def ledger(cluster: Cluster, number: int) -> Ledger:
    return Ledger(Connection(cluster.bootstrap), f"ledger-test-{number}", (STATES, number), PARTITIONS)


def fault(node: str) -> Event:
    return event_of(NodeFault(node, "c1", "xid", "79", "kmsg"), source="agent/a", id_=f"f-{node}", time_ms=1)


def keys(cluster: Cluster, topic: str) -> list[bytes]:
    return [message.key() for message in consumed(cluster, topic)]


def test_what_was_written_is_read_by_whoever_opens_the_lane_next(kafka: Cluster) -> None:
    first = ledger(kafka, 0)
    assert first.open() == {}
    first.write([], [(b"sa", b"1"), (b"sb", b"1")])
    first.write([], [(b"sa", b"2"), (b"sb", None)])
    assert ledger(kafka, 0).open() == {b"sa": b"2"}


def test_records_go_to_the_partition_of_their_key_and_a_context_to_every_lane(kafka: Cluster) -> None:
    log = ledger(kafka, 1)
    log.open()
    nodes = [f"node-{number}" for number in range(40)]
    change = event_of(ContextChange("c1", 5, beats=True), source="faultlens/context", id_="c", time_ms=5)
    sent = [Sent(topics.FINDINGS, node, fault(node)) for node in nodes]
    log.write([*sent, Sent(topics.CONTEXT, "c1", change)], [(b"l", b"1")])
    found = {message.key(): message.partition() for message in consumed(kafka, topics.FINDINGS)}
    assert found == {node.encode(): partition_of(node.encode(), PARTITIONS) for node in nodes}
    assert sorted(message.partition() for message in consumed(kafka, topics.CONTEXT)) == list(range(PARTITIONS))
    assert consumed(kafka, topics.CONTEXT)[0].headers() == [("content-type", b"application/cloudevents+json")]


def test_a_former_owner_that_wakes_in_the_middle_of_its_batch_has_written_nothing(kafka: Cluster) -> None:
    former = ledger(kafka, 2)
    former.open()
    former.write([Sent(topics.INCIDENTS, "c1", fault("kept"))], [(b"sn", b"old")])

    former._producer.begin_transaction()
    former._send(Sent(topics.INCIDENTS, "c1", fault("lost")))
    assert former._producer.flush(10) == 0  # here it freezes
    assert ledger(kafka, 2).open() == {b"sn": b"old"}
    with pytest.raises(ck.KafkaException, match="_FENCED"):
        former._producer.commit_transaction(10)
    with pytest.raises(WorldError, match="cannot write its batch"):
        former.write([Sent(topics.INCIDENTS, "c1", fault("lost"))], [(b"sn", b"new")])
    assert ledger(kafka, 2).open() == {b"sn": b"old"}
    assert len(consumed(kafka, topics.INCIDENTS)) == 1
    assert len(consumed(kafka, topics.INCIDENTS, isolation="read_uncommitted")) == 2


def test_whether_a_batch_was_written_is_told_by_the_changelog_when_the_coordinator_cannot(kafka: Cluster) -> None:
    unknown = ck.KafkaException(ck.KafkaError(ck.KafkaError.INVALID_TXN_STATE))
    log = ledger(kafka, 0)
    log.open()
    log.write([], [(b"l", b"1")])
    assert log._is_there(unknown, b"l", b"1")
    assert not log._is_there(unknown, b"l", b"2")
    log.write([], [(b"l", b"2")])
    other = ledger(kafka, 0)
    assert other.open()[b"l"] == b"2"
    other.write([], [(b"l", b"3")])
    with pytest.raises(WorldError, match="somebody else has taken the lane over"):
        log._is_there(unknown, b"l", b"4")


def test_a_state_larger_than_a_message_is_refused_by_the_broker_and_nothing_of_its_batch_is_there(
    kafka: Cluster,
) -> None:
    log = ledger(kafka, 0)
    before = log.open()
    with pytest.raises(WorldError, match="MSG_SIZE_TOO_LARGE"):
        log.write([], [(b"sa", b"x" * 2_000_000)])
    assert ledger(kafka, 0).open() == before


def test_a_hundred_thousand_states_are_read_in_seconds(kafka: Cluster) -> None:
    log = ledger(kafka, 1)
    log.open()
    for batch in range(10):
        log.write([], [(b"snode-%06d" % (batch * 10_000 + n), b"x" * 300) for n in range(10_000)])
    began_s = time.monotonic()
    assert len(ledger(kafka, 1).open()) >= 100_000
    assert time.monotonic() - began_s < 15
