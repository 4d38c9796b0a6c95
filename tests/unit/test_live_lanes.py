"""Lanes: records in order, written before they are done with, and nothing of what was taken away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import Any

import pytest

from faultlens import topics
from faultlens.codec import Event, encode, event_of
from faultlens.errors import WorldError
from faultlens.events import NodeHealth
from faultlens.internal import Held
from faultlens.kafka import ARRIVED, ENDS
from faultlens.meters import RoleMeters
from streams.live.arrived import as_appended, as_recorded, is_waited_for
from streams.live.changelog import Change
from streams.live.lane import Arrival, Lane
from streams.live.lanes import BATCH_RECORDS, Lanes, Pace, Run
from streams.runtime.records import Role, Sent
from tests.simulation.stories import T0
from tests.simulation.toy import BOOM, Toy, fault

TOY = Role(Toy(), (*Toy.topics, topics.CONTEXT))
# Nobody waits in these tests.
AT_ONCE = Pace(gather_s=0.0, hold_s=0.0, settle_s=0.0)
PATIENT = Pace(gather_s=0.0, hold_s=1e9, settle_s=1e9)


@dataclass(frozen=True)
class Got:
    """A record as the Kafka client hands it over."""

    topic: str
    offset: int
    timestamp: int
    value: bytes | None = None
    key: bytes | None = None
    partition: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class Book:
    """A log in memory that can be held up or fail."""

    kept: dict[bytes, bytes] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    batches: int = 0
    fails: bool = False
    retries: int = 0
    at_work: Flag = field(default_factory=Flag)
    may_go_on: Flag = field(default_factory=Flag)

    def __post_init__(self) -> None:
        self.may_go_on.set()

    def open(self) -> dict[bytes, bytes]:
        return dict(self.kept)

    def write(self, sent: Iterable[Sent], changes: Iterable[Change]) -> None:
        self.at_work.set()
        assert self.may_go_on.wait(30)
        if self.fails:
            raise WorldError("no broker")
        self.batches += 1
        self.sent += sent
        for key, value in changes:
            if value is None:
                self.kept.pop(key, None)
            else:
                self.kept[key] = value


def lane(book: Book, number: int = 0, arrival: Arrival = as_appended) -> Lane:
    return Lane(TOY, number, book, arrival, RoleMeters("toy"))


def faults(*offsets: int, code: str = "79") -> list[Got]:
    return [Got(topics.NODE_EVENTS, at, T0 + at, encode(fault(f"e{at}", "a", T0 + at, code)), b"a") for at in offsets]


def holds(*offsets: int) -> list[Got]:
    """Return records that change a state and make nobody say anything."""
    return [Got(topics.ALLOCATIONS, at, T0 + at, encode(held(at)), b"a") for at in offsets]


def reports(*offsets: int) -> list[Got]:
    return [Got(topics.NODE_EVENTS, at, T0 + at, encode(healthy(at)), b"a") for at in offsets]


def healthy(at: int) -> Event:
    data = NodeHealth("a", "c1", 30.0, 8, 8, ())
    return event_of(data, source="agent/a", id_=f"r{at}", time_ms=T0 + at)


def held(at: int) -> Event:
    return event_of(Held("a", f"job-{at}", 1, "c1", T0 + at), source="faultlens/job", id_=f"h{at}", time_ms=T0 + at)


def ticks(*offsets: int) -> list[Got]:
    return [Got(topics.NODE_EVENTS, at, T0 + at) for at in offsets]


# --- one lane -------------------------------------------------------------------------------------------


def test_a_lane_goes_on_where_its_last_batch_ended() -> None:
    book = Book()
    first = lane(book)
    first.open()
    assert first.step(faults(0, 1), settle=False)
    second = lane(book)
    second.open()
    second.step(faults(0, 1, 2), settle=False)
    told = [sent.event.id for sent in book.sent if sent.topic == topics.NODE_STATES]
    assert len(told) == len(set(told)) == 3
    state = second.task.states.get("a")
    assert state is not None
    assert state.state.faults == 3  # type: ignore[attr-defined]


def test_records_from_which_nothing_follows_are_not_written_for_until_it_is_time() -> None:
    book = Book()
    made = lane(book)
    made.open()
    assert made.step(ticks(0), settle=False)  # the first batch says where the lane is
    assert not made.step(ticks(1, 2), settle=False)
    assert book.batches == 1
    assert made.step([], settle=True)
    again = lane(book)
    again.open()
    assert again.task.lane.next == {topics.NODE_EVENTS: 3}


def test_states_that_nobody_waits_for_are_written_with_the_next_thing_that_is_sent() -> None:
    book = Book()
    made = lane(book)
    made.open()
    assert not made.step(holds(0), settle=False, hold=True)
    assert (book.batches, made.holds) == (0, True)
    assert made.step(faults(0), settle=False, hold=True)
    assert (book.batches, made.holds) == (1, False)
    assert not made.step(holds(1), settle=False, hold=True)
    again = lane(book)
    again.open()
    state = again.task.states.get("a")
    assert state is not None
    assert state.state.held == 1  # type: ignore[attr-defined]
    assert again.task.lane.next == {topics.NODE_EVENTS: 1, topics.ALLOCATIONS: 1}


def test_a_record_that_is_no_event_or_makes_the_processor_fail_is_buried_and_counted() -> None:
    made = lane(book := Book())
    made.open()
    broken = Got(topics.NODE_EVENTS, 0, T0, b"{", b"a", headers=(("sender", b"n1"), ("odd", b"\xff")))
    made.step([broken, *faults(1, code=BOOM), *faults(2)], settle=False)
    assert [sent.topic for sent in book.sent][:2] == [topics.DEAD_LETTERS] * 2
    assert [dict(sent.event.data.headers or {}) for sent in book.sent[:2]] == [{"sender": "n1", "odd": "\ufffd"}, {}]  # type: ignore[attr-defined]
    assert sorted(reason for _, reason in made._meters.dead) == ["not_json", "processor_error"]
    assert made._meters.records == {topics.NODE_EVENTS: 3}


def test_states_that_are_no_use_are_said_so() -> None:
    made = lane(Book(kept={b"sa": b"\x93"}))
    with pytest.raises(WorldError, match="the states of lane toy/0 are no use: the state of a cannot be read"):
        made.open()


def test_a_recording_that_is_played_has_the_time_it_says_and_ends_when_it_says() -> None:
    made = lane(book := Book(), arrival=as_recorded)
    made.open()
    said = ((ARRIVED, str(T0).encode()),)
    made.step([Got(topics.NODE_EVENTS, 0, 9, faults(7)[0].value, b"a", headers=said)], settle=False)
    assert made.task.clock_ms == T0
    before = len(book.sent)
    made.step([Got(topics.NODE_EVENTS, 1, 9, headers=((ARRIVED, str(T0 + 60).encode()), (ENDS, b"1")))], settle=True)
    assert made.task.clock_ms == T0 + 60
    assert len(book.sent) > before


# --- lanes together -------------------------------------------------------------------------------------


class Bench:
    """Lanes over books, driven by a test."""

    def __init__(self, pace: Pace = AT_ONCE, books: dict[int, Book] | None = None) -> None:
        self.books = books or {0: Book(), 1: Book()}
        self.done: list[int] = []
        self.failures: list[BaseException] = []
        self.lanes = Lanes(lambda number: lane(self.books[number], number), self.failures.append, pace)

    async def put(self, number: int, records: list[Got], mark: int = 0) -> bool:
        async def done() -> None:
            self.done.append(mark)

        return await self.lanes.put(number, Run(records, 0.0, done))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110 - lanes work in threads
                await asyncio.sleep(0.001)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_runs_are_done_with_in_order_after_they_are_written() -> None:
    async def test() -> None:
        bench = Bench()
        bench.books[0].may_go_on.clear()
        bench.lanes.assign([0, 1])
        for mark in range(3):
            assert await bench.put(0, faults(mark), mark)
        await bench.until(bench.books[0].at_work.is_set)
        assert bench.done == []
        assert bench.lanes.oldest() is not None
        bench.books[0].may_go_on.set()
        await bench.until(lambda: len(bench.done) == 3)
        assert bench.done == [0, 1, 2]
        assert (bench.lanes.oldest(), bench.lanes.owned, bench.lanes.are_open) == (None, [0, 1], True)

    run(test)


def test_one_lane_that_waits_does_not_hold_up_another() -> None:
    async def test() -> None:
        bench = Bench()
        bench.books[0].may_go_on.clear()
        bench.lanes.assign([0, 1])
        await bench.put(0, faults(0), 1)
        await bench.until(bench.books[0].at_work.is_set)
        await bench.put(1, faults(0), 2)
        await bench.until(lambda: bench.done == [2])
        bench.books[0].may_go_on.set()
        await bench.until(lambda: bench.done == [2, 1])

    run(test)


def test_a_lane_that_is_taken_away_ends_the_batch_it_is_at_and_drops_the_rest() -> None:
    async def test() -> None:
        bench = Bench()
        bench.books[0].may_go_on.clear()
        bench.lanes.assign([0])
        await bench.put(0, faults(0), 1)
        await bench.until(bench.books[0].at_work.is_set)
        await bench.put(0, faults(1), 2)
        leaving = asyncio.create_task(bench.lanes.release())
        await asyncio.sleep(0)
        assert not await bench.put(0, faults(2), 3)
        bench.books[0].may_go_on.set()
        await leaving
        assert (bench.done, bench.books[0].batches, bench.lanes.owned) == ([1], 1, [])

    run(test)


def test_whoever_waits_to_bring_more_is_let_go_when_the_lane_is_taken_away() -> None:
    async def test() -> None:
        bench = Bench()
        bench.books[0].may_go_on.clear()
        bench.lanes.assign([0])
        bringing = [asyncio.create_task(bench.put(0, faults(n), n)) for n in range(60)]
        await bench.until(bench.books[0].at_work.is_set)
        leaving = asyncio.create_task(bench.lanes.release())
        await asyncio.sleep(0)
        bench.books[0].may_go_on.set()
        async with asyncio.timeout(30):
            await leaving
            await asyncio.gather(*bringing)

    run(test)


def test_a_batch_that_cannot_be_written_ends_the_worker_and_nothing_is_done_with() -> None:
    async def test() -> None:
        bench = Bench(books={0: Book(fails=True)})
        bench.lanes.assign([0])
        await bench.put(0, faults(0))
        await bench.until(lambda: bool(bench.failures))
        assert [str(failure) for failure in bench.failures] == ["no broker"]
        assert bench.done == []

    run(test)


def test_what_waits_is_written_in_batches_that_are_not_too_large() -> None:
    async def test() -> None:
        bench = Bench(Pace(gather_s=5.0, hold_s=0.0, settle_s=0.0))
        bench.lanes.assign([0])
        size = BATCH_RECORDS // 4
        for number in range(8):
            await bench.put(0, faults(*range(number * size, (number + 1) * size)), number)
        await bench.until(lambda: len(bench.done) == 8)
        assert bench.books[0].batches == 2

    run(test)


def test_what_somebody_waits_for_goes_at_once_with_what_was_gathered_unless_a_batch_was_written_just_now() -> None:
    async def test() -> None:
        bench = Bench(Pace(gather_s=1e9, hold_s=0.0, settle_s=0.0))
        bench.lanes.assign([0])
        bench.lanes._places[0].written_s = -1e10
        await bench.put(0, ticks(0), 1)
        await bench.put(0, reports(1), 2)
        await bench.until(bench.lanes._places[0].waiting.empty)
        assert bench.done == []
        await bench.put(0, faults(2), 3)
        await bench.until(lambda: bench.done == [1, 2, 3])
        assert bench.books[0].batches == 1
        await bench.put(0, faults(3), 4)
        await bench.until(bench.lanes._places[0].waiting.empty)
        assert bench.done == [1, 2, 3]
        await bench.lanes.release()

    run(test)


def test_only_ticks_and_reports_are_what_nobody_waits_for() -> None:
    assert [is_waited_for(run) for run in (ticks(0), reports(0, 1), faults(0), [*reports(0), *holds(1)])] == [
        False, False, True, True,
    ]  # fmt: skip


def test_states_alone_are_written_after_a_while_though_nothing_else_comes() -> None:
    async def test() -> None:
        bench = Bench(Pace(gather_s=0.0, hold_s=0.05, settle_s=1e9))
        bench.lanes.assign([0])
        await bench.put(0, holds(0), 1)
        await bench.put(0, holds(1), 2)
        await bench.until(lambda: bench.done == [1, 2])
        assert not bench.books[0].sent

    run(test)


def test_ticks_alone_wait_for_the_next_batch() -> None:
    async def test() -> None:
        bench = Bench(PATIENT)
        bench.lanes.assign([0])
        await bench.put(0, faults(0), 1)
        await bench.until(lambda: bench.done == [1])
        await bench.put(0, ticks(1), 2)
        await bench.put(0, faults(2), 3)
        await bench.until(lambda: bench.done == [1, 2, 3])

    run(test)
