"""What each event leaves in the store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.clock import HOUR_MS, moment_of
from faultlens.codec import Event, encode, event_of
from faultlens.errors import InvalidEventError
from faultlens.events import (
    Check,
    Data,
    Device,
    JobAlive,
    JobAllocated,
    JobEnded,
    JobTime,
    NodeHealth,
    Slot,
)
from faultlens.internal import LaneCensus
from faultlens.topics import TOPICS, TYPES
from sinks.answer_rows import ANSWERS, MAX_LEDGER_HOURS
from sinks.input_rows import INPUTS, ordered
from sinks.rows import rows_of
from sinks.tables import GpuTime, JobFact, NodeFact, RawEvent

AT_MS = 1_795_000_000_000
# A ledger begins anywhere in thirty years and lasts up to a week.
STARTS = st.integers(min_value=0, max_value=30 * 365 * 24 * HOUR_MS)
LENGTHS = st.integers(min_value=0, max_value=7 * 24 * HOUR_MS)


def told(data: Data, *, source: str = "scheduler/slurm", id_: str = "e1", time_ms: int = AT_MS) -> Event:
    return event_of(data, source=source, id_=id_, time_ms=time_ms)


def ledger(start_ms: int, stop_ms: int) -> Event:
    time = JobTime("j1", 1, 1, "c1", "productive", moment_of(start_ms), moment_of(stop_ms), 8)
    return told(time, source="faultlens")


def test_every_answer_has_a_table() -> None:
    answers = {t.data for t in TYPES.values() if TOPICS[t.topic].kind == "output"}
    assert set(ANSWERS) == answers


def test_only_what_changes_no_job_node_or_command_is_kept_as_it_arrived_alone() -> None:
    inputs = {t.data for t in TYPES.values() if TOPICS[t.topic].kind == "input"}
    assert {data.__name__ for data in inputs - set(INPUTS)} == {
        "JobAlive",
        "JobProgress",
        "JobCheckpoint",
        "RankExited",
        "PlatformIncident",
        "PlatformRollout",
        "PlatformMaintenance",
        "OperatorControl",
    }


def test_an_input_is_kept_byte_for_byte() -> None:
    raw = b'{"specversion":"1.0", "unknown":1}'
    (row,) = rows_of(told(JobAlive("j1", 1, 30.0)), arrived_ms=AT_MS + 5, raw=raw)
    assert row == RawEvent("faultlens.job.alive.v1", "scheduler/slurm", "e1", "j1", AT_MS, AT_MS + 5, raw.decode())


def test_an_input_without_its_bytes_is_written_as_the_contract_says() -> None:
    event = told(JobAlive("j1", 1, 30.0))
    (row,) = rows_of(event, arrived_ms=AT_MS)
    assert isinstance(row, RawEvent)
    assert row.raw == encode(event).decode()


def test_records_between_processors_leave_nothing() -> None:
    assert rows_of(told(LaneCensus("c1", 0, AT_MS, 4, 4), source="faultlens"), arrived_ms=AT_MS) == []


@given(STARTS, LENGTHS)
def test_a_ledger_record_is_cut_at_hours_and_nothing_of_it_is_lost(start_ms: int, length_ms: int) -> None:
    rows = rows_of(ledger(start_ms, start_ms + length_ms), arrived_ms=AT_MS)
    borders = [start_ms]
    for row in rows:
        assert isinstance(row, GpuTime)
        assert row.start == borders[-1]
        assert row.hour <= row.start < row.stop <= row.hour + HOUR_MS
        assert row.hour % HOUR_MS == 0
        borders.append(row.stop)
    assert borders[-1] == start_ms + length_ms


def test_a_ledger_record_longer_than_answers_are_kept_is_refused() -> None:
    longest = rows_of(ledger(0, MAX_LEDGER_HOURS * HOUR_MS), arrived_ms=AT_MS)
    assert len(longest) == MAX_LEDGER_HOURS
    with pytest.raises(InvalidEventError, match="9601 hours, at most 9600"):
        rows_of(ledger(0, MAX_LEDGER_HOURS * HOUR_MS + 1), arrived_ms=AT_MS)


def ended(source: str, id_: str, arrived_ms: int) -> JobFact:
    fact = rows_of(told(JobEnded("j1", 1, "failed"), source=source, id_=id_), arrived_ms=arrived_ms)[0]
    assert isinstance(fact, JobFact)
    return fact


@given(STARTS, STARTS)
def test_a_schedulers_word_outranks_a_launchers_however_late_that_arrives(early_ms: int, late_ms: int) -> None:
    by_launcher = ended("launcher/j1", "a", late_ms)
    assert ended("scheduler/slurm", "b", early_ms).precedence > by_launcher.precedence
    assert ended("bridge/kubernetes", "c", early_ms).precedence > by_launcher.precedence


@given(STARTS, st.integers(min_value=1, max_value=HOUR_MS))
def test_of_two_words_of_equal_rank_the_later_arrival_counts(first_ms: int, later_ms: int) -> None:
    first, second = ended("bridge/a", "a", first_ms), ended("bridge/b", "b", first_ms + later_ms)
    assert first.precedence < second.precedence < 2**64


def test_two_words_that_arrive_together_are_ordered_by_their_ids_and_not_by_chance() -> None:
    one, other = told(JobAlive("j1", 1, 30.0), id_="a"), told(JobAlive("j1", 1, 30.0), id_="b")
    assert ordered(AT_MS, one) != ordered(AT_MS, other)
    assert ordered(AT_MS, one) == ordered(AT_MS, told(JobAlive("j1", 1, 30.0), id_="a"))


@pytest.mark.parametrize(
    ("slots", "gpus"),
    [
        ((Slot("n1", devices=(0, 1)), Slot("n2", mig=("m1",))), 3),
        ((Slot("n1", device_refs=("d/p/0",)),), 1),
        ((Slot("n1", devices=(0, 1)), Slot("n2")), None),
        ((), 0),
    ],
)
def test_devices_held_are_counted_where_every_node_names_them(slots: tuple[Slot, ...], gpus: int | None) -> None:
    fact = rows_of(told(JobAllocated("j1", 1, "c1", slots)), arrived_ms=AT_MS)[0]
    assert isinstance(fact, JobFact)
    assert fact.gpus == gpus
    assert fact.node_names == [slot.node for slot in slots]


def test_a_report_says_how_the_node_stands_and_an_inventory_is_kept_apart() -> None:
    checks = (
        Check("ecc", "gpu", "pass"),
        Check("thermal", "gpu", "timeout"),
        Check("ib_links", "nic", "off", message="no InfiniBand here"),
    )
    health = NodeHealth("n1", "c1", 30.0, 8, 7, checks, pool="train", devices=(Device(0, uuid="GPU-1"),))
    report, inventory, _ = rows_of(told(health, source="agent/n1"), arrived_ms=AT_MS)
    assert isinstance(report, NodeFact)
    assert isinstance(inventory, NodeFact)
    assert (report.fact, report.pool, report.gpus_allocatable, report.failing) == (
        "report",
        "train",
        7,
        ["thermal=timeout"],
    )
    assert (inventory.fact, inventory.devices) == ("inventory", '[{"index":0,"uuid":"GPU-1"}]')
