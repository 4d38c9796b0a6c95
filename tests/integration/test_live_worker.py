"""One worker on a real Kafka: over TLS with a password, with ticks, metrics, complaints; and topics that are wrong."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from faultlens import topics
from faultlens.cli import main
from faultlens.kafka import Connection, client_config, producer_config
from faultlens.murmur2 import partition_of
from tests.kafka.cluster import Cluster
from tests.kafka.living import Worker, asked, consumed, free_port, fresh_topics, running, until
from tests.kafka.tokens import token_provider

ck: Any = pytest.importorskip("confluent_kafka", reason="the Kafka client is not installed (extra `stream`)")
admin: Any = pytest.importorskip("confluent_kafka.admin", reason="the Kafka client is not installed (extra `stream`)")
pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def secured(kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a process that speaks TLS and logs in."""
    password = tmp_path / "password"
    password.write_text(kafka.password, "utf-8")
    tls = kafka.certificates
    for name, value in {
        "BROKERS": kafka.secure_bootstrap,
        "KAFKA_SECURITY": "sasl_ssl",
        "KAFKA_USER": kafka.user,
        "KAFKA_PASSWORD_FILE": password,
        "KAFKA_CA": tls.ca,
        "KAFKA_CERTIFICATE": tls.client,
        "KAFKA_KEY": tls.client_key,
    }.items():
        monkeypatch.setitem(os.environ, f"FAULTLENS_{name}", str(value))


def test_a_worker_over_tls_takes_its_lanes_ticks_and_is_seen(kafka: Cluster, secured: None, tmp_path: Path) -> None:
    fresh_topics(kafka, 2)
    port = free_port()
    worker = Worker(None, "node", tmp_path / "log", "--metrics", f"127.0.0.1:{port}", "--log", "json")
    with running([worker]):
        until(lambda: asked(port, "/readyz") == "ok\n")
        until(lambda: len(consumed(kafka, topics.NODE_EVENTS)) >= 4)
        key = next(b"n%d" % n for n in range(9) if partition_of(b"n%d" % n, 2) == 0)
        producer = ck.Producer(producer_config(Connection(kafka.bootstrap)))
        misplaced = count()

        def complained() -> bool:
            # Of what is fetched together the first record is looked at.
            producer.produce(topics.NODE_EVENTS, b"{%d" % next(misplaced), key, partition=1)
            producer.flush(30)
            return "partitions by another hash" in worker.said()

        until(complained)
        until(lambda: 'reason="not_json"' in asked(port, "/metrics"))
        assert asked(port, "/healthz") == "ok\n"
        assert 'faultlens_partitions{role="node"} 6.0' in asked(port, "/metrics")
        assert worker.end() == 0, worker.said()
    assert kafka.password not in worker.said()
    ticks = [message for message in consumed(kafka, topics.NODE_EVENTS) if not message.value()]
    assert {message.partition() for message in ticks} == {0, 1}
    assert 1 <= len(consumed(kafka, topics.DEAD_LETTERS)) <= next(misplaced)


def test_a_worker_that_shows_tokens_takes_its_lanes(
    kafka: Cluster, secured: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh_topics(kafka, 2)
    port = free_port()
    with token_provider() as provider:
        for name, value in {
            "BROKERS": kafka.token_bootstrap,
            "KAFKA_MECHANISM": "OAUTHBEARER",
            "KAFKA_TOKEN_URL": provider.url,
        }.items():
            monkeypatch.setenv(f"FAULTLENS_{name}", value)
        worker = Worker(None, "node", tmp_path / "log", "--metrics", f"127.0.0.1:{port}")
        with running([worker]):
            until(lambda: asked(port, "/readyz") == "ok\n")
            until(lambda: len(consumed(kafka, topics.NODE_EVENTS)) >= 2)
            assert worker.end() == 0, worker.said()
        assert {each["client"] for each in provider.asked} == {f"{kafka.user}:{kafka.password}"}
    assert not [token for token in provider.given if token in worker.said()]


def test_a_worker_refuses_topics_that_are_not_as_they_must_be(kafka: Cluster, tmp_path: Path) -> None:
    fresh_topics(kafka, 2)
    client = admin.AdminClient(client_config(Connection(kafka.bootstrap)))
    for grown in client.create_partitions([admin.NewPartitions(topics.EVIDENCE, 5)]).values():
        grown.result(30)
    worker = Worker(kafka, "job", tmp_path / "log")
    worker.start()
    until(lambda: worker.code is not None)
    assert worker.code == 2
    assert "evidence: partitions is 5, wanted 2: records that belong together would miss each other" in worker.said()


def test_a_check_says_which_topics_are_wrong(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAULTLENS_BROKERS", kafka.bootstrap)
    fresh_topics(kafka, 2)
    for wanted in (
        "ok       topics      all are as they must be, 2 partitions",
        "conditions: partitions is 3, wanted 1",
    ):
        with pytest.raises(SystemExit):
            main(["check", "--store", str(tmp_path / "store")])
        assert wanted in capsys.readouterr().out
        client = admin.AdminClient(client_config(Connection(kafka.bootstrap)))
        for grown in client.create_partitions([admin.NewPartitions(topics.CONDITIONS, 3)]).values():
            grown.exception(30)
