"""Events wait on disk until the broker has them: in order, bounded, whatever happens in between."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event as Flag
from time import monotonic

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultlens.codec import Decoder, Event, event_of
from faultlens.errors import WorldError
from faultlens.events import Device, NodeFault, NodeHealth
from producers.delivery.memory import MemoryBroker
from producers.delivery.outbox import BATCH, MAX_VALUE_BYTES, MEMORY_EVENTS, Outbox, Parcel
from producers.delivery.spool import Spool

NOW_MS = 1_800_000_000_000


def fault(number: int, message: str = "") -> Event:
    data = NodeFault("n1", "c1", "xid", "79", "kmsg", message=message or None)
    return event_of(data, source="agent/n1", id_=f"fault-{number}", time_ms=NOW_MS + number)


def report(number: int, devices: tuple[Device, ...] | None = None) -> Event:
    data = NodeHealth("n1", "c1", 30.0, 8, 8, (), devices=devices)
    return event_of(data, source="agent/n1", id_=f"report-{number}", time_ms=NOW_MS + number)


def ids(spool: Spool) -> list[str]:
    return [Decoder().decode(waiting.raw).id for waiting in spool.oldest(100_000)]


def delivered(broker: MemoryBroker) -> list[str]:
    return [Decoder().decode(record.value).id for record in broker.records]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool"


# --- the spool -------------------------------------------------------------------------------------------


def test_what_waits_survives_the_process_in_its_order(path: Path) -> None:
    spool = Spool(path)
    for number in range(5):
        spool.add(fault(number))
    size = spool.bytes
    again = Spool(path)
    assert ids(again) == [f"fault-{number}" for number in range(5)]
    assert (len(again), again.bytes) == (5, size)
    again.done(again.oldest(2))
    assert ids(Spool(path)) == ["fault-2", "fault-3", "fault-4"]


def test_beyond_its_limit_it_drops_the_oldest_reports_and_counts_them(path: Path) -> None:
    spool = Spool(path, limit_bytes=20_000)
    for number in range(100):
        spool.add(report(number))
        if number % 10 == 0:
            spool.add(fault(number))
    assert [name for name in ids(spool) if name.startswith("fault")] == [f"fault-{n}" for n in range(0, 100, 10)]
    reports = [name for name in ids(spool) if name.startswith("report")]
    assert reports == [f"report-{n}" for n in range(100 - len(reports), 100)]
    assert (spool.folded, spool.lost) == (100 - len(reports), 0)
    assert spool.bytes <= 20_000


def test_the_inventory_is_no_report_like_others(path: Path) -> None:
    spool = Spool(path, limit_bytes=10_000)
    spool.add(report(0, devices=(Device(0, "GPU-1"),)))
    for number in range(1, 100):
        spool.add(report(number))
    assert ids(spool)[0] == "report-0"


def test_faults_go_last_and_are_counted_as_lost(path: Path) -> None:
    spool = Spool(path, limit_bytes=10_000)
    for number in range(100):
        spool.add(fault(number))
    assert ids(spool)[-1] == "fault-99"
    assert spool.lost == 100 - len(spool)


def test_a_damaged_file_is_put_aside_and_a_new_one_begun(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)
    spool = Spool(path)
    spool.add(fault(1))
    assert spool.damaged
    assert ids(Spool(path)) == ["fault-1"]
    assert path.with_name("spool.damaged").read_bytes().startswith(b"no database")


def test_a_directory_that_cannot_be_written_is_the_world_s_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WorldError, match="cannot be written"):
        Spool(tmp_path / "file" / "spool")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2_000)), max_size=60), st.integers(2_000, 20_000))
def test_whatever_comes_the_count_and_the_bytes_are_what_is_there(
    tmp_path_factory: pytest.TempPathFactory, coming: list[tuple[bool, int]], limit: int
) -> None:
    path = tmp_path_factory.mktemp("spool") / "spool"
    spool = Spool(path, limit_bytes=limit)
    for number, (is_fault, size) in enumerate(coming):
        spool.add(fault(number, "x" * size) if is_fault else report(number))
        if number % 7 == 6:
            spool.done(spool.oldest(2))
    again = Spool(path)
    assert (len(spool), spool.bytes) == (len(again), again.bytes)
    assert len(ids(again)) == len(again)
    assert spool.bytes <= limit or len(spool) == 0


# --- the outbox ------------------------------------------------------------------------------------------


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def outbox(path: Path, broker: MemoryBroker) -> Iterator[Outbox]:
    outbox = Outbox(Spool(path), broker, now_ms=lambda: NOW_MS + 5)
    yield outbox
    outbox.close(10)


def test_events_arrive_in_their_order_stamped_when_they_were_handed_over(outbox: Outbox, broker: MemoryBroker) -> None:
    for number in range(1_200):
        outbox.put(fault(number))
    assert outbox.close(30)
    assert delivered(broker) == [f"fault-{number}" for number in range(1_200)]
    assert {record.topic for record in broker.records} == {"node-events"}
    assert {record.key for record in broker.records} == {"n1"}
    assert {Decoder().decode(record.value).sent_ms for record in broker.records} == {NOW_MS + 5}
    assert outbox.delivered == 1_200


def test_while_the_broker_is_away_all_wait_and_the_next_process_delivers_them(path: Path) -> None:
    away = MemoryBroker()
    away.away = True
    outbox = Outbox(Spool(path), away)
    for number in range(10):
        outbox.put(fault(number))
    assert not outbox.close(30)
    back = MemoryBroker()
    assert Outbox(Spool(path), back).close(30)
    assert delivered(back) == [f"fault-{number}" for number in range(10)]


def test_of_a_hand_over_that_partly_arrived_the_rest_is_sent_again(path: Path) -> None:
    broker = MemoryBroker()
    broker.takes = 3
    outbox = Outbox(Spool(path), broker)
    for number in range(4):
        outbox.put(fault(number))
    outbox.close(30)
    broker.takes = None
    assert Outbox(Spool(path), broker).close(30)
    assert delivered(broker) == [f"fault-{number}" for number in range(4)]


def test_what_no_broker_would_take_blocks_nothing_behind_it(path: Path, broker: MemoryBroker) -> None:
    spool = Spool(path)
    spool.add(fault(0, "x" * MAX_VALUE_BYTES))
    file = sqlite3.connect(path)
    file.execute("INSERT INTO waiting (rank, size, event) VALUES (2, 9, x'00')")
    file.commit()
    outbox = Outbox(Spool(path), broker)
    outbox.put(fault(1))
    assert outbox.close(30)
    assert delivered(broker) == ["fault-1"]
    assert outbox.unkept == 2


class FullDisk(Spool):
    """A spool whose disk takes nothing until it is told to."""

    full = True

    def add(self, event: Event) -> None:
        if self.full:
            raise WorldError("the spool cannot be written: disk full")
        super().add(event)


def test_while_the_disk_is_full_the_newest_events_wait_in_memory(path: Path, broker: MemoryBroker) -> None:
    spool = FullDisk(path)
    outbox = Outbox(spool, broker)
    for number in range(MEMORY_EVENTS + 3):
        outbox.put(fault(number))
    assert outbox.disk_error == "the spool cannot be written: disk full"
    spool.full = False
    outbox.put(fault(MEMORY_EVENTS + 3))
    assert outbox.disk_error is None
    assert outbox.close(30)
    assert delivered(broker) == [f"fault-{number}" for number in range(3, MEMORY_EVENTS + 4)]
    assert outbox.unkept == 3


def test_who_waits_for_what_it_put_is_told_when_all_of_it_has_arrived(path: Path) -> None:
    broker = MemoryBroker()
    broker.away = True
    outbox = Outbox(Spool(path), broker)
    outbox.put(fault(1))
    assert not outbox.settle(0.05)
    broker.away = False
    assert outbox.settle(10)
    assert delivered(broker) == ["fault-1"]
    assert outbox.close(10)


class SilentBroker(MemoryBroker):
    """A broker that a hand-over waits for until it is let go; before it there are some that arrive."""

    def __init__(self, *, good: int = 0) -> None:
        super().__init__()
        self.let_go = Flag()
        self._good = good

    def publish(self, records: Sequence[Parcel]) -> int:
        if self._good:
            self._good -= 1
            Flag().wait(0.2)
            return super().publish(records)
        self.let_go.wait(60)
        return 0


def test_the_end_does_not_wait_for_brokers_that_say_nothing_where_all_is_on_the_disk(path: Path) -> None:
    broker = SilentBroker()
    outbox = Outbox(Spool(path), broker)
    outbox.put(fault(1))
    began = monotonic()
    assert not outbox.close(30, quiet_s=0.3)
    assert monotonic() - began < 15
    broker.let_go.set()
    assert ids(Spool(path)) == ["fault-1"]


def test_the_end_waits_as_long_as_something_arrives(path: Path) -> None:
    spool = Spool(path)
    for number in range(4 * BATCH):
        spool.add(fault(number))
    broker = SilentBroker(good=4)
    assert Outbox(spool, broker).close(30, quiet_s=0.6)
    assert len(broker.records) == 4 * BATCH


def test_the_end_waits_its_whole_time_for_what_is_only_in_memory(path: Path) -> None:
    spool, broker = FullDisk(path), SilentBroker()
    outbox = Outbox(spool, broker)
    spool.full = False
    outbox.put(fault(1))
    spool.full = True
    outbox.put(fault(2))
    began = monotonic()
    assert not outbox.close(1.0, quiet_s=0.1)
    assert monotonic() - began >= 1.0
    broker.let_go.set()


def test_nothing_that_was_put_before_the_end_is_left_behind_by_it(tmp_path: Path) -> None:
    for number in range(200):
        broker = MemoryBroker()
        outbox = Outbox(Spool(tmp_path / f"spool-{number}"), broker)
        outbox.put(fault(number))
        assert outbox.close(30), number
        assert delivered(broker) == [f"fault-{number}"]
