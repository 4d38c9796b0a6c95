"""The live pipeline as processes of its own on a real Kafka, and what it has written."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from faultlens.codec import Decoder, Event
from faultlens.kafka import Connection, client_config, consumer_config
from faultlens.kafka_topics import STATE_ROLES, TopicAdmin, plans, state_topic
from faultlens.topics import TYPES
from tests.kafka.cluster import Cluster

ck: Any = pytest.importorskip("confluent_kafka", reason="the Kafka client is not installed (extra `stream`)")
admin: Any = pytest.importorskip("confluent_kafka.admin", reason="the Kafka client is not installed (extra `stream`)")

PATIENCE_SECONDS: Final = 120.0


def fresh_topics(cluster: Cluster, partitions: int, *, copies: int | None = None) -> None:
    """Leave nothing of what was on the brokers, and make all topics anew; `copies` None: on every broker."""
    connection = Connection(cluster.bootstrap)
    client = admin.AdminClient(client_config(connection))
    old = [name for name in client.list_topics(timeout=30).topics if not name.startswith("__")]
    if old:
        for deleted in client.delete_topics(old, operation_timeout=30).values():
            deleted.result(60)
        until(lambda: not set(old) & set(client.list_topics(timeout=30).topics))
    until(lambda: not _left_after_forgetting(client))
    wanted = plans(partitions)
    if copies is not None:
        wanted = [replace(plan, settings={**plan.settings, "min.insync.replicas": str(copies)}) for plan in wanted]
    TopicAdmin(connection).create(wanted, copies or cluster.size)


def _left_after_forgetting(client: Any) -> list[str]:
    """Forget all groups and return those that cannot be yet: a member that was killed stays until its session ends."""
    groups = [group.group_id for group in client.list_consumer_groups().result(30).valid]
    answers = client.delete_consumer_groups(groups) if groups else {}
    errors = {group: answer.exception(30) for group, answer in answers.items()}
    for error in errors.values():
        if error is not None and error.args[0].code() != ck.KafkaError.NON_EMPTY_GROUP:
            raise error
    return [group for group, error in errors.items() if error is not None]


def until(holds: Any, patience_s: float = PATIENCE_SECONDS, pause_s: float = 0.1) -> None:
    """Wait until something holds."""
    deadline = monotonic() + patience_s
    while not holds():
        assert monotonic() < deadline, f"it does not hold after {patience_s:.0f} s"
        sleep(pause_s)


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def asked(port: int, path: str) -> str:
    """Return what a process answers on its port for metrics; empty: nothing."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return str(answer.read().decode())
    except (URLError, OSError):
        return ""


def faultlens(*arguments: str, timeout_s: float = PATIENCE_SECONDS, given: bytes | None = None) -> str:
    """Run the program, `given` on its standard input, and return what it says; it must end well."""
    command = [sys.executable, "-m", "faultlens.cli", *arguments]
    done = subprocess.run(command, input=given, capture_output=True, timeout=timeout_s, check=False)
    said = done.stderr.decode("utf-8", "replace")[-2_000:]
    assert done.returncode == 0, f"{' '.join(arguments)} ended with {done.returncode}: {said}"
    return done.stdout.decode("utf-8")


class Worker:
    """One process of `faultlens stream`, with logs in a file."""

    def __init__(self, cluster: Cluster | None, role: str, log: Path, *options: str) -> None:
        """`cluster` None: the environment says where it is."""
        self.role = role
        self._log = log
        place = () if cluster is None else ("--brokers", cluster.bootstrap)
        self._command = [sys.executable, "-m", "faultlens.cli", "stream", "--role", role, *place, *options]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def code(self) -> int | None:
        """The exit code; None: it runs, or never did."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int | None:
        """The process's id; None: it was not started."""
        return None if self._process is None else self._process.pid

    def twin(self) -> Worker:
        """Return another one of the same kind, which was not started."""
        other = copy(self)
        other._process = None
        return other

    def start(self) -> None:
        """Start it, also anew."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=os.environ | {"TERM": "dumb"})

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        if self._process is None:
            return 0
        self.send(number)
        self.send(signal.SIGCONT)
        try:
            return self._process.wait(45)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def said(self) -> str:
        """Return the end of its log."""
        return self._log.read_text("utf-8", "replace")[-4_000:] if self._log.exists() else ""


def consumed(cluster: Cluster, topic: str, *, isolation: str = "read_committed") -> list[Any]:
    """Return the messages of a topic up to its end now."""
    config = consumer_config(Connection(cluster.bootstrap), "tests") | {
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "log_level": 0,
    }
    consumer = ck.Consumer(config)
    count = len(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([ck.TopicPartition(topic, number, ck.OFFSET_BEGINNING) for number in range(count)])
    found: list[Any] = []
    over: set[int] = set()
    while len(over) < count:
        for message in consumer.consume(1_000, 1.0):
            if message.error() is None:
                found.append(message)
            elif message.error().code() == ck.KafkaError._PARTITION_EOF:
                over.add(message.partition())
    consumer.close()
    return found


def events_of(cluster: Cluster, topic: str) -> list[Event]:
    """Return the committed events of a topic, each partition's in order."""
    decode = Decoder(TYPES).decode
    return [decode(message.value()) for message in consumed(cluster, topic) if message.value()]


class OpenTransactions:
    """Sees which roles are in the middle of a transaction: their states end behind what may be read of them."""

    def __init__(self, cluster: Cluster) -> None:
        self._client = admin.AdminClient(client_config(Connection(cluster.bootstrap)))
        topics = self._client.list_topics(timeout=30).topics
        self._places = {
            role: [ck.TopicPartition(state_topic(role), number) for number in topics[state_topic(role)].partitions]
            for role in STATE_ROLES
        }

    def transactions(self, role: str) -> bool:
        """Return whether the role writes just now; nobody knows where a partition has just moved."""
        try:
            readable = self._ends(role, ck.IsolationLevel.READ_COMMITTED)
            return readable != self._ends(role, ck.IsolationLevel.READ_UNCOMMITTED)
        except ck.KafkaException as error:
            if error.args[0].code() != ck.KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
            self._client.list_topics(timeout=30)
            return False

    def _ends(self, role: str, isolation: Any) -> list[int]:
        asked = {place: admin.OffsetSpec.latest() for place in self._places[role]}
        answers = self._client.list_offsets(asked, isolation_level=isolation, request_timeout=10)
        return [answers[place].result(10).offset for place in self._places[role]]


@contextmanager
def running(workers: Sequence[Worker]) -> Iterator[None]:
    """Start the workers, and end them afterwards."""
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.send(signal.SIGTERM)
        for worker in workers:
            worker.end()


def said(workers: Iterable[Worker]) -> str:
    """Return the ends of all logs."""
    return "\n".join(f"--- {worker.role}\n{worker.said()}" for worker in workers)
