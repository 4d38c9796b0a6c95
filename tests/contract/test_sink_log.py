"""What the sink relies on of a log: one suite over the log in memory and a real Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from time import monotonic
from typing import Any, Protocol

import pytest

from faultlens.kafka import Connection, client_config, producer_config
from sinks.log import Log, Place, Taken
from sinks.memory_log import MemoryBroker, MemoryLog
from tests.kafka.cluster import Cluster

PATIENCE_S = 30.0
_numbers = count()


class Backend(Protocol):
    """A topic of two partitions, with a way to write to it and members of a group that read it."""

    topic: str

    def append(self, partition: int, *values: bytes) -> None:
        """Append records."""

    def mark(self, partition: int) -> None:
        """Leave an offset that no reader sees."""

    def member(self) -> Log:
        """Return a new member of the group."""


class InMemory:
    """The fake."""

    def __init__(self) -> None:
        self.topic = "log"
        self.broker = MemoryBroker({self.topic: 2})

    def append(self, partition: int, *values: bytes) -> None:
        for value in values:
            self.broker.append((self.topic, partition), value, key=b"k", headers={"h": b"v"})

    def mark(self, partition: int) -> None:
        self.broker.mark((self.topic, partition))

    def member(self) -> Log:
        return MemoryLog(self.broker, [self.topic], "group")


class OnKafka:
    """The real one."""

    def __init__(self, cluster: Cluster) -> None:
        ck: Any = pytest.importorskip("confluent_kafka", reason="the Kafka client is not installed (extra `stream`)")
        admin: Any = pytest.importorskip("confluent_kafka.admin", reason="part of it")
        self.topic = f"sink-log-{next(_numbers)}"
        self.connection = Connection(cluster.bootstrap)
        administrator = admin.AdminClient(client_config(self.connection))
        administrator.create_topics([admin.NewTopic(self.topic, 2, 1)])[self.topic].result(30)
        quiet = {"log_level": 0}
        self._plain = ck.Producer(producer_config(self.connection) | quiet)
        self._transactional = ck.Producer(producer_config(self.connection, transactional_id=self.topic) | quiet)
        self._transactional.init_transactions(30)

    def append(self, partition: int, *values: bytes) -> None:
        for value in values:
            self._plain.produce(self.topic, value, b"k", partition, headers={"h": b"v"})
        assert self._plain.flush(30) == 0

    def mark(self, partition: int) -> None:
        self._transactional.begin_transaction()
        self._transactional.produce(self.topic, b"taken back", b"k", partition)
        assert self._transactional.flush(30) == 0
        self._transactional.abort_transaction(30)

    def member(self) -> Log:
        from sinks.kafka import KafkaLog

        return KafkaLog(self.connection, [self.topic], self.topic)


@pytest.fixture(params=["memory", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow])])
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "memory":
        return InMemory()
    return OnKafka(request.getfixturevalue("kafka"))


@pytest.fixture
def members(backend: Backend) -> Iterator[Callable[[], Log]]:
    begun: list[Log] = []

    def begin() -> Log:
        begun.append(backend.member())
        return begun[-1]

    yield begin
    for member in begun:
        member.close()


def taken(log: Log, records: int, *others: Log) -> list[Taken]:
    """Read until so many records came; `others` are kept in the group meanwhile."""
    found: list[Taken] = []
    deadline = monotonic() + PATIENCE_S
    while len(found) < records:
        assert monotonic() < deadline, f"{len(found)} of {records} records came"
        found += log.poll(100, 0.1)
        for other in others:
            assert other.poll(100, 0.0) == []
    return found


def until(log: Log, what: Callable[[], bool], *others: Log) -> None:
    """Poll until it is true; nothing may be handed out meanwhile."""
    deadline = monotonic() + PATIENCE_S
    while not what():
        assert monotonic() < deadline
        for member in (log, *others):
            assert member.poll(100, 0.1) == []


def values(records: list[Taken], partition: int) -> list[bytes | None]:
    return [record.value for record in records if record.partition == partition]


def test_every_partition_is_handed_out_in_order_with_keys_and_headers(
    backend: Backend, members: Callable[[], Log]
) -> None:
    backend.append(0, b"a", b"", b"c")
    backend.mark(0)
    backend.append(0, b"e")
    backend.append(1, b"z")
    log = members()
    records = taken(log, 5)
    assert values(records, 0) == [b"a", b"", b"c", b"e"]
    assert values(records, 1) == [b"z"]
    offsets = [record.offset for record in records if record.partition == 0]
    assert offsets[:3] == [0, 1, 2]
    assert offsets[3] > 3, "what was taken back has an offset too"
    assert {(record.topic, record.key, record.headers) for record in records} == {(backend.topic, b"k", (("h", b"v"),))}
    assert {place: holding.start for place, holding in log.held.items()} == {
        (backend.topic, 0): 0,
        (backend.topic, 1): 0,
    }


def test_the_next_owner_begins_at_what_was_committed(backend: Backend, members: Callable[[], Log]) -> None:
    backend.append(0, b"a", b"b", b"c")
    backend.append(1, b"x", b"y")
    first = backend.member()
    assert len(taken(first, 5)) == 5
    first.commit({(backend.topic, 0): 2})
    first.close()
    log = members()
    records = taken(log, 3)
    assert (values(records, 0), values(records, 1)) == ([b"c"], [b"x", b"y"])
    assert log.held[(backend.topic, 0)].start == 2


def test_nothing_comes_while_it_is_paused_and_everything_afterwards(
    backend: Backend, members: Callable[[], Log]
) -> None:
    backend.append(0, b"a")
    log = members()
    taken(log, 1)
    log.pause()
    backend.append(0, b"b")
    backend.append(1, b"c")
    for _ in range(10):
        assert log.poll(100, 0.05) == []
    log.resume()
    assert {record.value for record in taken(log, 2)} == {b"b", b"c"}


def test_a_member_more_takes_a_share_and_what_stays_is_not_begun_anew(
    backend: Backend, members: Callable[[], Log]
) -> None:
    backend.append(0, b"a")
    backend.append(1, b"b")
    first = members()
    taken(first, 2)
    first.commit({(backend.topic, 0): 1, (backend.topic, 1): 1})
    before = dict(first.held)
    second = members()
    until(first, lambda: len(first.held) == len(second.held) == 1, second)
    (kept,) = first.held
    assert first.held[kept] == before[kept]
    places: set[Place] = set(first.held) | set(second.held)
    assert places == set(before)
    for place in places:
        backend.append(place[1], b"new")
    owner = {place: member for member in (first, second) for place in member.held}
    assert [record.value for record in taken(owner[kept], 1)] == [b"new"]


def test_the_lag_is_what_was_not_handed_out_and_none_at_the_end(backend: Backend, members: Callable[[], Log]) -> None:
    backend.append(0, b"a", b"b")
    log = members()
    taken(log, 2)
    backend.mark(0)
    deadline = monotonic() + PATIENCE_S
    lag = log.lags()
    while lag.keys() != log.held.keys() or any(lag.values()):
        assert monotonic() < deadline
        assert log.poll(100, 0.1) == []
        lag = log.lags()
