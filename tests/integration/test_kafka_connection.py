"""The connection against a real broker: with and without TLS, by password, and refused with a wrong one."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import Any

import pytest
from pydantic import SecretStr

from faultlens.kafka import Connection, Identity, client_config, consumer_config, producer_config
from tests.kafka.cluster import Cluster
from tests.kafka.tokens import token_provider

ck = pytest.importorskip("confluent_kafka", reason="the Kafka client is not installed (extra `stream`)")
admin: Any = pytest.importorskip("confluent_kafka.admin", reason="the Kafka client is not installed (extra `stream`)")
pytestmark = pytest.mark.kafka


def secured(cluster: Cluster, password: str | None = None) -> Connection:
    """Return a connection with TLS, a password and a certificate of our own."""
    identity = Identity("SCRAM-SHA-512", cluster.user, SecretStr(password or cluster.password))
    tls = cluster.certificates
    return Connection(cluster.secure_bootstrap, "sasl_ssl", identity, tls.ca, tls.client, tls.client_key)


def test_a_record_goes_out_encrypted_and_comes_back_in_the_open(kafka: Cluster) -> None:
    administrator = admin.AdminClient(client_config(secured(kafka)))
    administrator.create_topics([admin.NewTopic("connection", 1, 1)])["connection"].result(30)
    reports: list[object] = []
    producer = ck.Producer(producer_config(secured(kafka)))
    producer.produce("connection", b"told", b"key", on_delivery=lambda error, _: reports.append(error))
    assert (producer.flush(30), reports) == (0, [None])
    consumer = ck.Consumer(consumer_config(Connection(kafka.bootstrap), "connection"))
    consumer.assign([ck.TopicPartition("connection", 0, 0)])
    message = consumer.poll(30)
    consumer.close()
    assert (message.key(), message.value()) == (b"key", b"told")


def test_who_shows_a_token_of_a_provider_is_let_in(kafka: Cluster) -> None:
    with token_provider() as provider:
        identity = Identity("OAUTHBEARER", "worker", SecretStr("hunter2"), provider.url, "kafka")
        connection = Connection(kafka.token_bootstrap, "sasl_ssl", identity, kafka.certificates.ca)
        found = admin.AdminClient(client_config(connection)).list_topics(timeout=30)
        assert len(found.brokers) == kafka.size
    assert {asked["client"] for asked in provider.asked} == {"worker:hunter2"}


@pytest.mark.parametrize("what", ["password", "authority"])
def test_a_wrong_password_and_an_unknown_authority_are_refused(kafka: Cluster, what: str) -> None:
    told: list[str] = []
    connection = secured(kafka, "wrong") if what == "password" else replace(secured(kafka), ca=None)
    config = client_config(connection) | {"error_cb": lambda error: told.append(error.name()), "log_level": 0}
    client = ck.Producer(config)
    deadline = monotonic() + 30
    while not told and monotonic() < deadline:
        client.poll(0.1)
    assert told[0] == ("_AUTHENTICATION" if what == "password" else "_SSL")
