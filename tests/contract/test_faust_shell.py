"""What of Faust and aiokafka our shell rests on without having been promised it: another version may differ."""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("faust", reason="Faust is not installed (extra `stream`)")

import faust
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from faust.transport import consumer as base
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from streams.app import RoleWorker
from streams.live.lanes import Run
from streams.shell.consumer import FETCH_BYTES, FETCH_WAIT_MS, CommittedReader, PrefixConsumer
from streams.shell.runs import MAX_RECORDS, RunMessage, RunScheduler

A, B = TP("a", 0), TP("b", 0)


def test_it_is_the_version_that_was_looked_at() -> None:
    assert version("faust-streaming") == "0.15.3"


@pytest.mark.parametrize(
    "name",
    [
        "_to_message",
        "_add_gap",
        "_new_offset",
        "getmany",
        "on_partitions_revoked",
        "perform_seek",
        "stop_flow",
    ],
)
def test_faust_calls_what_the_consumer_replaces_with_the_same_arguments(name: str) -> None:
    theirs, ours = getattr(driver.Consumer, name), getattr(PrefixConsumer, name)
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)


def test_faust_asks_the_replaced_methods_for_what_may_be_committed_and_creates_its_thread_by_them() -> None:
    assert "self._new_offset(tp)" in inspect.getsource(base.Consumer._filter_committable_offsets)
    assert "self._to_message" in inspect.getsource(base.Consumer.getmany)
    assert "self._add_gap(" in inspect.getsource(base.Consumer._drain_messages)
    assert "self._new_consumer_thread()" in inspect.getsource(base.ThreadDelegateConsumer.__init__)
    assert "self._create_worker_consumer(" in inspect.getsource(driver.AIOKafkaConsumerThread._create_consumer)


def test_faust_keeps_its_books_under_the_names_that_we_clear() -> None:
    kept = inspect.getsource(base.Consumer.__init__)
    for name in ("_gap", "_acked", "_acked_index", "_read_offset", "_committed_offset"):
        assert f"self.{name} = " in kept
    assert "acked_index = self._acked_index[tp]" in inspect.getsource(base.Consumer.ack)


def test_faust_stops_flow_and_fetches_by_the_methods_that_we_watch() -> None:
    assert "consumer.stop_flow)()" in inspect.getsource(faust.App._on_partitions_revoked)
    assert "self._getmany(" in inspect.getsource(base.Consumer._wait_next_records)
    assert "ait = cast(AsyncIterator, getmany(timeout=1.0))" in inspect.getsource(base.Consumer._drain_messages)
    kept = inspect.getsource(base.Consumer.__init__)
    for name in ("can_resume_flow", "scheduler"):
        assert f"self.{name}" in kept


def test_only_another_stream_leaves_acknowledging_to_us() -> None:
    stream: Any = faust.App("acks", store="memory://").stream([])
    assert stream.noack() is not stream
    assert (stream.enable_acks, stream.noack().enable_acks) == (True, False)


def test_the_client_reads_the_settings_that_we_change_when_it_starts() -> None:
    started = inspect.getsource(AIOKafkaConsumer.start)
    for name in ("_isolation_level", "_fetch_max_wait_ms", "_fetch_min_bytes"):
        assert f"self.{name}" in started
    assert "self._partition_assignment_strategy" in started


def test_the_reader_sees_committed_records_promptly_and_whole_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare:
        _isolation_level = "read_uncommitted"
        _partition_assignment_strategy: tuple[Any, ...] = ()
        _fetch_max_wait_ms = 1_500
        _fetch_min_bytes = 1

    monkeypatch.setattr(driver.AIOKafkaConsumerThread, "_create_worker_consumer", lambda *_: Bare())
    transport = SimpleNamespace(app=SimpleNamespace(fetch_bytes=FETCH_BYTES))
    made = CommittedReader._create_worker_consumer(CommittedReader.__new__(CommittedReader), transport)
    assert made._isolation_level == "read_committed"
    assert made._partition_assignment_strategy == (RangePartitionAssignor,)
    assert (made._fetch_min_bytes, made._fetch_max_wait_ms) == (FETCH_BYTES, FETCH_WAIT_MS)


# --- what the replaced parts do -------------------------------------------------------------------------


class Stream:
    """Events as Faust hands them to an agent: each is acknowledged when the next is asked for, or by the agent."""

    def __init__(self, count: int, *, acks: bool = True) -> None:
        self.count, self.acks = count, acks
        self.acknowledged: list[int] = []

    def noack(self) -> Stream:
        return Stream(self.count, acks=False)

    async def events(self) -> AsyncIterator[SimpleNamespace]:
        for number in range(self.count):
            message = SimpleNamespace(partition=0, generation_id=1)
            yield SimpleNamespace(message=message, value=[Fetched(number)], number=number)
            if self.acks:
                await self.ack(SimpleNamespace(number=number))

    async def ack(self, event: SimpleNamespace) -> None:
        self.acknowledged.append(event.number)


class Waiting:
    """Lanes that never come to write anything."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    async def put(self, number: int, run: Run) -> bool:
        self.runs.append(run)
        return True


def test_what_a_lane_has_not_written_is_not_acknowledged() -> None:
    worker = RoleWorker.__new__(RoleWorker)
    lanes, stream = Waiting(), Stream(3)
    worker.app = SimpleNamespace(consumer_generation_id=1)  # type: ignore[assignment]
    worker.lanes = lanes  # type: ignore[assignment]
    worker._misplaced = set()
    asyncio.run(worker._agent(stream))
    assert len(lanes.runs) == 3
    manual = lanes.runs[0].done.func.__self__  # type: ignore[attr-defined]
    assert (stream.acknowledged, manual.acknowledged) == ([], [])
    asyncio.run(lanes.runs[0].done())  # type: ignore[arg-type]
    assert manual.acknowledged == [0]


def consumer(handed_out: dict[TP, list[int]], acknowledged: dict[TP, list[int]]) -> PrefixConsumer:
    """Return a consumer that has handed out offsets and been told that some are done with."""
    made = PrefixConsumer.__new__(PrefixConsumer)
    made._handed_out = defaultdict(deque, {tp: deque(offsets) for tp, offsets in handed_out.items()})
    made._acked = defaultdict(list, {tp: list(offsets) for tp, offsets in acknowledged.items()})
    made._acked_index = defaultdict(set, {tp: set(offsets) for tp, offsets in acknowledged.items()})
    return made


def test_nothing_is_committed_past_what_is_not_done_with() -> None:
    made = consumer({A: [5, 9, 14], B: [3]}, {A: [5, 14], B: []})
    assert (made._new_offset(A), made._new_offset(B)) == (6, None)
    assert made._new_offset(A) is None
    made._acked_index[A].add(9)
    assert made._new_offset(A) == 15


def test_what_is_done_with_out_of_order_is_remembered_until_it_is_in_order() -> None:
    made = consumer({A: [1, 2, 3]}, {A: [2, 3]})
    assert made._new_offset(A) is None
    made._acked_index[A].add(1)
    assert made._new_offset(A) == 4


class Fetched:
    """A record as the client hands it over, as far as a run needs it."""

    topic = "a"
    key = None
    timestamp = 7
    timestamp_type = 1

    def __init__(self, offset: int) -> None:
        self.offset = offset


def runs(records: dict[TP, list[Fetched]]) -> list[tuple[TP, RunMessage]]:
    return list(RunScheduler().iterate(records))


def test_fetched_records_come_as_runs_each_partition_in_turn() -> None:
    fetched = {A: [Fetched(n) for n in range(2 * MAX_RECORDS + 1)], B: [Fetched(n) for n in range(3)], TP("c", 0): []}
    found = [(tp, run.offset, len(run.value)) for tp, run in runs(fetched)]
    assert found == [
        (A, MAX_RECORDS - 1, MAX_RECORDS),
        (B, 2, 3),
        (A, 2 * MAX_RECORDS - 1, MAX_RECORDS),
        (A, 2 * MAX_RECORDS, 1),
    ]
