"""The sink between a real Kafka and a store: whatever is killed or away, everything is in the store once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from faultlens.kafka import Connection, client_config
from faultlens.store import Store, open_store
from sinks.migrate import migrate
from tests.clickhouse.front import Server
from tests.kafka.cluster import Cluster
from tests.kafka.fixtures import _cluster
from tests.kafka.sinking import Feed, SinkProcess, assert_all_is_in, create_topics, read_all, until

pytestmark = [pytest.mark.kafka, pytest.mark.store, pytest.mark.slow]

# `make soak` asks for more.
FIRST = int(os.environ.get("FAULTLENS_SOAK_FIRST", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("FAULTLENS_SOAK", "1")))
ROUNDS = 5
KINDS = ("fault", "report", "report", "ended", "broken", "stray", "poison", "tick", "tick")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker for this module alone: the sink's topics have the names that others use too."""
    for cluster in _cluster(tmp_path_factory.mktemp("sunk"), 1):
        create_topics(cluster)
        yield cluster


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "data")
    server.begin()
    yield server
    server.end()


@pytest.fixture
def store(server: Server) -> Iterator[Store]:
    with open_store(f"clickhouse://127.0.0.1:{server.server_port}", password="") as store:
        migrate(store)
        yield store


def test_everything_that_is_there_is_in_an_embedded_store_once(broker: Cluster, tmp_path: Path) -> None:
    feed = Feed(broker, "embedded")
    feed.write([(kind, number) for number, kind in enumerate(KINDS * 3)])
    feed.write_at_once([("fault", number) for number in range(100, 110)])
    feed.write_at_once([("fault", number) for number in range(200, 210)], commit=False)
    feed.write([("ended", number) for number in range(300, 310)])
    dsn = str(tmp_path / "store")
    sink = SinkProcess(broker, dsn, "embedded", tmp_path / "log", {})
    sink.start("--until-caught-up")
    assert sink.wait() == 0, sink.said()
    with open_store(dsn) as store:
        assert_all_is_in(store, broker)
    report = audited(broker, dsn, "embedded")
    assert report["exit"] == 0
    assert report["deep"]["is_good"]
    assert report["deep"]["records"] == sum(partition["records"] for partition in report["partitions"]) > 50
    with open_store(dsn) as store:
        store.command("ALTER TABLE faults DELETE WHERE id = 'e105' SETTINGS mutations_sync = 2")
        store.command("ALTER TABLE sink_runs DELETE WHERE topic = 'job-events' SETTINGS mutations_sync = 2")
    report = audited(broker, dsn, "embedded")
    assert report["exit"] == 1
    assert [row["table"] for row in report["deep"]["missing"]] == ["faults"]
    holes = {partition["topic"] for partition in report["partitions"] if partition["missing"]}
    assert holes == {"job-events"}


def audited(broker: Cluster, dsn: str, group: str) -> dict[str, Any]:
    options = ["--brokers", broker.bootstrap, "--store", dsn, "--group", group, "--audit", "--deep", "--json"]
    command = [sys.executable, "-m", "faultlens.cli", "sink", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout, done.stderr
    return {"exit": done.returncode, **json.loads(done.stdout)}


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_and_outages_lose_and_double_nothing(
    broker: Cluster, server: Server, store: Store, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)  # noqa: S311
    feed = Feed(broker, f"kills-{seed}")
    sink = SinkProcess(broker, f"clickhouse://127.0.0.1:{server.server_port}", f"kills-{seed}", tmp_path / "log", {})
    sink.start()
    number = 10_000 * seed
    for _ in range(ROUNDS):
        for _ in range(dice.randint(3, 10)):
            feed.write([(dice.choice(KINDS), number + n) for n in range(dice.randint(1, 40))])
            feed.write_at_once([("fault", number + n) for n in range(50, 55)], commit=dice.random() < 0.7)
            number += 60
            sleep(dice.uniform(0.0, 0.15))
        match dice.choice(("kill", "kill", "hang up", "busy", "lose answers")):
            case "kill":
                sink.kill()
                sink.start()
            case "hang up":
                server.hangs_up = True
                sleep(dice.uniform(0.3, 1.5))
                server.hangs_up = False
            case "busy":
                server.answers = dice.choice((252, 241, 999, 159))
                sleep(dice.uniform(0.3, 1.5))
                server.answers = None
            case "lose answers":
                server.loses_answers = True
                sleep(dice.uniform(0.1, 0.5))
                server.loses_answers = False
    assert sink.terminate() == 0, sink.said()
    sink.start("--until-caught-up")
    assert sink.wait() == 0, sink.said()
    assert_all_is_in(store, broker)
    report = audited(broker, sink.store, sink.group)
    assert (report["exit"], report["deep"]["missing"], report["deep"]["doubled"]) == (0, [], {})


def test_a_store_that_refuses_us_ends_the_sink_and_nothing_is_acknowledged(
    broker: Cluster, server: Server, store: Store, tmp_path: Path
) -> None:
    Feed(broker, "refused").write([("ended", number) for number in range(20_000, 20_010)])
    sink = SinkProcess(broker, f"clickhouse://127.0.0.1:{server.server_port}", "refused", tmp_path / "log", {})
    server.answers = 497
    sink.start()
    assert sink.wait() == 3
    assert "Code: 497" in sink.said()
    server.answers = None
    sink.start("--until-caught-up")
    assert sink.wait() == 0, sink.said()
    assert_all_is_in(store, broker)


def test_an_outage_is_told_once_and_ends_by_itself(
    broker: Cluster, server: Server, store: Store, tmp_path: Path
) -> None:
    server.hangs_up = True
    sink = SinkProcess(broker, f"clickhouse://127.0.0.1:{server.server_port}", "outage", tmp_path / "log", {})
    Feed(broker, "outage").write([("ended", number) for number in range(30_000, 30_100)])
    sink.start()
    until(lambda: "the store is busy" in sink.said())
    seen = server.requests
    until(lambda: server.requests >= seen + 3)
    assert store_is_empty(server)
    server.hangs_up = False
    until(lambda: "the store works again" in sink.said())
    assert sink.terminate() == 0
    sink.start("--until-caught-up")
    assert sink.wait() == 0
    assert_all_is_in(store, broker)


def test_the_sink_logs_in_with_tls_and_a_password_and_says_when_it_is_refused(broker: Cluster, tmp_path: Path) -> None:
    right = tmp_path / "password"
    right.write_text(broker.password)
    secured = {
        "FAULTLENS_BROKERS": broker.secure_bootstrap,
        "FAULTLENS_KAFKA_SECURITY": "sasl_ssl",
        "FAULTLENS_KAFKA_USER": broker.user,
        "FAULTLENS_KAFKA_CA": str(broker.certificates.ca),
    }
    wrong = secured | {"FAULTLENS_KAFKA_PASSWORD": "not-that-one"}
    refused = SinkProcess(broker, str(tmp_path / "refused"), "secured", tmp_path / "refused.log", wrong)
    refused.start()
    assert refused.wait() == 3
    assert "they refuse our user or password" in refused.said()
    assert "not-that-one" not in refused.said()
    let_in = secured | {"FAULTLENS_KAFKA_PASSWORD_FILE": str(right)}
    sink = SinkProcess(broker, str(tmp_path / "store"), "secured", tmp_path / "log", let_in)
    sink.start("--until-caught-up")
    assert sink.wait() == 0, sink.said()
    assert broker.password not in sink.said()
    with open_store(sink.store) as store:
        assert_all_is_in(store, broker)


def test_a_sink_that_is_told_to_end_ends_though_no_broker_answers(broker: Cluster, tmp_path: Path) -> None:
    sink = SinkProcess(broker, str(tmp_path / "store"), "leaving", tmp_path / "log", {})
    Feed(broker, "leaving").write([("ended", number) for number in range(50_000, 50_010)])
    sink.start()
    # It is at work when it has committed something; before that, brokers that do not answer end it otherwise.
    until(lambda: committed(broker, "leaving"))
    (only,) = broker.brokers.values()
    only.freeze()
    try:
        assert sink.terminate() == 0, sink.said()
    finally:
        only.thaw()
    sink.start("--until-caught-up")
    assert sink.wait() == 0, sink.said()
    with open_store(sink.store) as store:
        assert_all_is_in(store, broker)


def committed(broker: Cluster, group: str) -> bool:
    """Return whether the group has committed offsets."""
    client = AdminClient(client_config(Connection(broker.bootstrap)))
    (answer,) = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return bool(answer.result(10).topic_partitions)


def store_is_empty(server: Server) -> bool:
    return server.carried_out({}, b"SELECT count() FROM sink_runs").strip() == b"0"


def dead_letters(broker: Cluster, *arguments: str) -> Any:
    return told("dead-letters", *arguments, "--brokers", broker.bootstrap)


def told(*arguments: str) -> Any:
    command = [sys.executable, "-m", "faultlens.cli", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_dead_record_gets_another_chance_and_no_third_one_by_itself(broker: Cluster, tmp_path: Path) -> None:
    Feed(broker, "again").write([("broken", 41_000)])
    sink = SinkProcess(broker, str(tmp_path / "store"), "again", tmp_path / "log", {})
    sink.start("--until-caught-up")
    assert sink.wait() == 0, sink.said()
    newest = dead_letters(broker, "list", "--topic", "job-events", "--reason", "not_json")[0]
    whole = dead_letters(broker, "show", newest["id"])
    assert whole["value"] == '{"specversion": "1.0"'
    assert dead_letters(broker, "retry", newest["id"]) == {"ready": 1, "sent": 0, "left_out": {}}
    before = [record for record in read_all(broker) if record.topic == "job-events"]
    assert dead_letters(broker, "retry", newest["id"], "--yes") == {"ready": 1, "sent": 1, "left_out": {}}
    (again,) = [record for record in read_all(broker) if record.topic == "job-events" and record not in before]
    first = next(r for r in before if (r.partition, r.offset) == (newest["partition"], newest["offset"]))
    assert (again.value, again.key) == (first.value, first.key)
    sink.start("--until-caught-up")
    assert sink.wait() == 0, sink.said()
    with open_store(sink.store) as store:
        assert_all_is_in(store, broker)
    failed = dead_letters(broker, "list", "--topic", "job-events", "--reason", "not_json")[0]
    assert (failed["retries"], failed["offset"]) == (1, again.offset)
    assert dead_letters(broker, "retry", failed["id"], "--yes") == {
        "ready": 0,
        "sent": 0,
        "left_out": {"failed_again": 1},
    }
    assert dead_letters(broker, "retry", failed["id"], "--again") == {"ready": 1, "sent": 0, "left_out": {}}
    shown = told("dead-letters", "show", failed["id"], "--store", sink.store)
    assert shown == dead_letters(broker, "show", failed["id"])
    since = told("dead-letters", "list", "--since", failed["time"], "--reason", "not_json", "--store", sink.store)
    assert [letter["id"] for letter in since] == [failed["id"]]
