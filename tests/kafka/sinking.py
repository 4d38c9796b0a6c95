"""A sink as a process of its own between a real Kafka and a store, and what must be in the store in the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import pytest

from faultlens.kafka import Connection, client_config, producer_config
from faultlens.store import Store
from sinks.intake import SUNK
from sinks.log import Taken
from sinks.runs import RUNS_TABLE, RunRow
from tests.clickhouse.reading import rows_in
from tests.kafka.cluster import Cluster
from tests.simulation.sinking import expected, stored, value_of

ck: Any = pytest.importorskip("confluent_kafka", reason="the Kafka client is not installed (extra `stream`)")
admin: Any = pytest.importorskip("confluent_kafka.admin", reason="the Kafka client is not installed (extra `stream`)")

PARTITIONS: Final = 3
PATIENCE_S: Final = 60.0


def create_topics(cluster: Cluster) -> None:
    """Make what the sink reads, with append-time stamps."""
    stamped = {"message.timestamp.type": "LogAppendTime"}
    wanted = [admin.NewTopic(name, PARTITIONS, cluster.size, config=stamped) for name in SUNK]
    administrator = admin.AdminClient(client_config(Connection(cluster.bootstrap)))
    for made in administrator.create_topics(wanted).values():
        made.result(30)


class Feed:
    """Writes records of all kinds, some within transactions that end well or not."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        connection, quiet = Connection(cluster.bootstrap), {"log_level": 0}
        self._plain = ck.Producer(producer_config(connection) | quiet)
        self._transactional = ck.Producer(producer_config(connection, transactional_id=f"feed-{name}") | quiet)
        self._transactional.init_transactions(30)

    def write(self, kinds: Iterable[tuple[str, int]]) -> None:
        """Append one record of each (kind, number)."""
        for kind, number in kinds:
            place, value = value_of(kind, number)
            content = b"" if kind == "tick" else value
            self._plain.produce(place[0], content, str(number % 11).encode(), partition=number % PARTITIONS)
            self._plain.poll(0)
        assert self._plain.flush(30) == 0

    def write_at_once(self, kinds: Iterable[tuple[str, int]], *, commit: bool = True) -> None:
        """Append them in one transaction: a marker follows, and nobody reads them if it is aborted."""
        self._transactional.begin_transaction()
        for kind, number in kinds:
            place, value = value_of(kind, number)
            self._transactional.produce(place[0], value, b"k", partition=number % PARTITIONS)
        if commit:
            self._transactional.commit_transaction(30)
        else:
            self._transactional.flush(30)
            self._transactional.abort_transaction(30)


class SinkProcess:
    """`faultlens sink` on the cluster's topics, with logs in a file."""

    def __init__(self, cluster: Cluster, store: str, group: str, log: Path, environment: Mapping[str, str]) -> None:
        self._command = [sys.executable, "-m", "faultlens.cli", "sink"]
        environment = {"FAULTLENS_BROKERS": cluster.bootstrap, **environment}
        self._command += ["--store", store, "--group", group, "--instance", "one", "--age-s", "0.2", "--log", "json"]
        self._environment = {**os.environ, **environment}
        self.log, self.store, self.group = log, store, group
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start it and wait until it works."""
        begun = self.said().count("the sink begins")
        with self.log.open("ab") as log:
            command = [*self._command, *options]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)
        until(lambda: self.said().count("the sink begins") > begun or self._has_ended())

    def _has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def kill(self) -> None:
        """End it without another word."""
        self._signal(signal.SIGKILL)
        self.wait()

    def terminate(self) -> int:
        """Ask it to end, and return its exit code."""
        self._signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Return its exit code once it has ended."""
        assert self._process is not None
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def said(self) -> str:
        """Return its logs."""
        return self.log.read_text("utf-8") if self.log.exists() else ""


def read_all(cluster: Cluster) -> list[Taken]:
    """Return every committed record of the sink's topics, read by a consumer that knows nothing of the sink."""
    config = client_config(Connection(cluster.bootstrap)) | {
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    consumer = ck.Consumer(config)
    places = [ck.TopicPartition(topic, partition, 0) for topic in SUNK for partition in range(PARTITIONS)]
    consumer.assign(places)
    ended: set[tuple[str, int]] = set()
    records: list[Taken] = []
    deadline = monotonic() + PATIENCE_S
    while len(ended) < len(places):
        assert monotonic() < deadline
        for message in consumer.consume(1000, 0.2):
            if message.error() is not None:
                ended.add((message.topic(), message.partition()))
                continue
            place = (message.topic(), message.partition())
            records.append(Taken(*place, message.offset(), message.timestamp()[1], message.value(), message.key()))
    consumer.close()
    return records


def assert_all_is_in(store: Store, cluster: Cluster) -> None:
    """Every committed record is in the store once, or a dead letter; runs follow each other and count what was seen."""
    records = read_all(cluster)
    keys, dead = expected(records)
    assert stored(lambda table: rows_in(store, table.name, table.columns)) == keys
    letters = rows_in(store, "dead_letters", ("topic", "partition", "offset"))
    assert {(row["topic"], row["partition"], row["offset"]) for row in letters} == dead
    runs = [RunRow(**row) for row in rows_in(store, RUNS_TABLE, RunRow._fields)]  # type: ignore[arg-type]
    for topic in SUNK:
        for partition in range(PARTITIONS):
            offsets = [record.offset for record in records if (record.topic, record.partition) == (topic, partition)]
            reached = 0
            for run in sorted(run for run in runs if (run.topic, run.partition) == (topic, partition)):
                assert run.start <= reached
                assert run.records == sum(run.start <= offset < run.stop for offset in offsets)
                reached = max(reached, run.stop)
            assert reached == max(offsets, default=-1) + 1


def until(what: Any, patience_s: float = PATIENCE_S) -> None:
    """Wait until `what()` is true."""
    deadline = monotonic() + patience_s
    while not what():
        assert monotonic() < deadline, "waited in vain"
        sleep(0.05)
