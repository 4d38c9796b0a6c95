"""What an outbox may expect of a broker: one contract, over the real one and the one in memory."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

import pytest
import stamina
from msgspec.structs import replace

from faultlens.clock import wall_ms
from faultlens.codec import Decoder, event_of
from faultlens.events import NodeFault
from faultlens.kafka import Connection, client_config, consumer_config
from faultlens.topics import ATTRIBUTIONS
from producers.delivery.memory import MemoryBroker
from producers.delivery.outbox import Broker, Parcel
from tests.kafka.cluster import Cluster
from tests.unit.test_launcher import verdict

TOPIC = "node-events"
pytestmark = pytest.mark.kafka


@dataclass
class Place:
    """A broker that is there, one that is away, and what arrived at the first."""

    broker: Broker
    away: Broker
    read: Any


def _real(cluster: Cluster) -> Place:
    ck = pytest.importorskip("confluent_kafka", reason="the Kafka client is not installed (extra `stream`)")
    admin = pytest.importorskip("confluent_kafka.admin", reason="the Kafka client is not installed (extra `stream`)")
    from producers.delivery.kafka import KafkaBroker

    connection = Connection(cluster.bootstrap)
    administrator = admin.AdminClient(client_config(connection))
    if TOPIC not in administrator.list_topics(timeout=30).topics:
        administrator.create_topics([admin.NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    consumer = ck.Consumer(consumer_config(connection, "delivery"))
    topic = ck.TopicPartition(TOPIC, 0)
    # A topic that was made a moment ago may have no leader yet.
    for attempt in stamina.retry_context(on=ck.KafkaException, attempts=None, timeout=30):
        with attempt:
            _, end = consumer.get_watermark_offsets(topic, timeout=30)

    def read(count: int) -> list[tuple[str, bytes]]:
        consumer.assign([ck.TopicPartition(TOPIC, 0, end)])
        messages = consumer.consume(count, 30)
        consumer.close()
        return [(message.key().decode(), message.value()) for message in messages]

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = Connection(f"127.0.0.1:{closed.getsockname()[1]}")
    return Place(KafkaBroker(connection, timeout_ms=20_000), KafkaBroker(nobody, timeout_ms=1_000), read)


def _fake() -> Place:
    broker, away = MemoryBroker(), MemoryBroker()
    away.away = True
    return Place(broker, away, lambda _count: [(record.key, record.value) for record in broker.records])


@pytest.fixture(params=["real", "fake"])
def place(request: pytest.FixtureRequest) -> Place:
    return _real(request.getfixturevalue("kafka")) if request.param == "real" else _fake()


def parcels(count: int) -> list[Parcel]:
    faults = (NodeFault("n1", "c1", "xid", str(number), "kmsg") for number in range(count))
    events = [event_of(data, source="agent/n1", id_=f"f{data.code}", time_ms=1_800_000_000_000) for data in faults]
    return [Parcel(event, sent_ms=1_800_000_000_001) for event in events]


def test_what_was_handed_over_has_arrived_in_its_order_under_its_key(place: Place) -> None:
    sent = parcels(50)
    assert place.broker.publish(sent) == 50
    arrived = place.read(50)
    assert {key for key, _ in arrived} == {"n1"}
    assert [Decoder().decode(value).id for _, value in arrived] == [f"f{number}" for number in range(50)]


def test_a_broker_that_is_away_has_nothing_and_says_so_in_time(place: Place) -> None:
    assert place.away.publish(parcels(3)) == 0


def test_nothing_handed_over_is_nothing_arrived(place: Place) -> None:
    assert place.broker.publish([]) == 0


def test_a_launcher_hears_a_verdict_that_was_written_before_the_brokers_had_answered_it(kafka: Cluster) -> None:
    admin = pytest.importorskip("confluent_kafka.admin", reason="the Kafka client is not installed (extra `stream`)")
    from producers.delivery.kafka import KafkaBroker
    from producers.launcher.verdicts import KafkaVerdicts

    connection = Connection(kafka.bootstrap)
    administrator = admin.AdminClient(client_config(connection))
    if ATTRIBUTIONS not in administrator.list_topics(timeout=30).topics:
        administrator.create_topics([admin.NewTopic(ATTRIBUTIONS, 2, 1)])[ATTRIBUTIONS].result(30)
    began_ms = wall_ms()
    said = replace(verdict("platform", "retry"), job_id="heard", attempt=8)
    for id_, data in (("a7", replace(said, attempt=7)), ("a8", said)):
        event = event_of(data, source="job/heard", id_=id_, time_ms=began_ms)
        assert KafkaBroker(connection).publish([Parcel(event, sent_ms=began_ms)]) == 1
    verdicts = KafkaVerdicts(connection, wait_s=30.0, since_ms=began_ms)
    assert verdicts.verdict("heard", 8, decides=True) == said
    assert verdicts.verdict("heard", 9, decides=False) is None
    verdicts.close()
