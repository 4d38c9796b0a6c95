"""One lane of a role: what it does with records, with time, and with what goes wrong."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens import topics
from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, parse_moment
from faultlens.codec import Event, encode, event_of
from faultlens.events import DeadLetter, JobStarted, PlatformIncident
from faultlens.internal import ClusterCensus, ContextChange, LaneCensus
from streams.processor import Effects, Shelved
from streams.runtime.records import LaneRecord, Record, Role, Sent
from streams.runtime.state import EncodedStates, Kept, KeptCodec
from streams.runtime.task import MAX_BACKOFF_MINUTES, MAX_SURVEYS_OF_A_GAP, ProcessorFailingError, Task
from streams.runtime.wakes import NEVER, Wakes
from tests.simulation.toy import BOOM, FAILS_LATER, FORGET, NAP_MS, Tally, Toy, fault

T0 = parse_moment("2026-11-23T04:00:00Z")
TOY = Role(Toy(), (*Toy.topics, topics.CONTEXT))


def records(*events: Event | bytes | None, topic: str = topics.NODE_EVENTS, first: int = 0) -> list[Record]:
    """Return the events as consecutive records; each arrives at its time, what is no event with the one before."""
    found: list[Record] = []
    arrived_ms = T0
    for offset, event in enumerate(events, first):
        if isinstance(event, Event):
            arrived_ms = event.recorded_ms or event.time_ms
        value = encode(event) if isinstance(event, Event) else event or b""
        found.append(Record(topic, offset, arrived_ms, value=value, key="n"))
    return found


def tick(offset: int, at_ms: int) -> Record:
    return Record(topics.NODE_EVENTS, offset, at_ms)


def said(sent: Iterable[Sent]) -> list[str]:
    """Return what the toy said of nodes, and the reasons of dead letters, in order."""
    return [str(getattr(s.event.data, "cause", getattr(s.event.data, "reason", s.topic))) for s in sent]


def letters(sent: Iterable[Sent]) -> list[DeadLetter]:
    return [s.event.data for s in sent if isinstance(s.event.data, DeadLetter)]


def tally(task: Task, node: str = "n") -> Tally:
    kept = task.states.get(node)
    assert kept is not None
    assert isinstance(kept.state, Tally)
    return kept.state


# --- time ----------------------------------------------------------------------------------------------


def test_a_wake_fires_before_the_record_that_moves_the_clock_past_it() -> None:
    task = Task(TOY)
    batch = task.step(records(fault("1", "n", T0), fault("2", "n", T0 + NAP_MS)))
    assert said(batch.sent) == ["seen-1", "allocations", "woken-1", "seen-2", "allocations"]


def test_wakes_fire_at_their_time_in_time_order_and_of_a_tie_by_key() -> None:
    task = Task(TOY)
    task.step(records(fault("1", "z", T0), fault("2", "b", T0 + 5), fault("3", "a", T0 + 5)))
    batch = task.step([tick(3, T0 + HOUR_MS)])
    assert [(s.event.subject, s.event.time_ms) for s in batch.sent] == [
        ("z", T0 + NAP_MS),
        ("a", T0 + NAP_MS + 5),
        ("b", T0 + NAP_MS + 5),
    ]


def test_a_later_wish_to_be_woken_replaces_the_earlier_one() -> None:
    task = Task(TOY)
    task.step(records(fault("1", "n", T0), fault("2", "n", T0 + MINUTE_MS)))
    task.advance(T0 + NAP_MS)
    assert said(task.collect()) == []
    task.advance(T0 + NAP_MS + MINUTE_MS)
    assert said(task.collect()) == ["woken-1"]


def test_the_clock_never_goes_back() -> None:
    task = Task(TOY)
    task.step(records(fault("1", "n", T0 + HOUR_MS), fault("2", "n", T0)))
    assert task.clock_ms == T0 + HOUR_MS
    assert task.states.get("n") == Kept(tally(task), T0 + HOUR_MS + NAP_MS)


def test_live_only_the_topic_with_ticks_moves_the_clock() -> None:
    task = Task(TOY, ticking=True)
    task.step([tick(0, T0)])
    task.step(
        records(Event("faultlens.internal.held.v1", "s", "i", "n", T0, _held(), None, T0 + DAY_MS), topic="allocations")
    )
    assert task.clock_ms == T0
    task.step([tick(1, T0 + 1000)])
    assert task.clock_ms == T0 + 1000


def test_a_tick_does_nothing_but_move_the_clock() -> None:
    batch = Task(TOY).step([tick(0, T0)])
    assert (batch.changed, batch.sent, batch.lane.clock_ms, batch.lane.next) == ({}, [], T0, {topics.NODE_EVENTS: 1})


def test_a_key_that_is_forgotten_is_not_woken() -> None:
    task = Task(TOY)
    task.step(records(fault("1", "n", T0), fault("2", "n", T0 + 1, FORGET)))
    task.advance(T0 + DAY_MS)
    assert (said(task.collect()), task.states.get("n"), len(task.states)) == ([], None, 0)


def test_who_asks_for_the_time_just_given_is_woken_a_second_later_and_not_for_ever() -> None:
    class Insists(Toy):
        def on_time(self, key: str, now_ms: int, context: Any, state: Any) -> Any:
            effects = super().on_time(key, now_ms, context, state)
            return type(effects)(effects.state, effects.emits, now_ms)

    task = Task(Role(Insists(), Toy.topics))
    task.step(records(fault("1", "n", T0)))
    task.advance(T0 + NAP_MS + 3000)
    assert tally(task).wakes == 4


def test_a_wide_role_that_asks_for_the_time_just_given_is_woken_a_second_later_and_not_for_ever() -> None:
    class Insists(Toy):
        def on_event(self, event: Event, now_ms: int, context: Any, state: Any) -> Effects:
            return Effects(None, shelved={"n": Shelved(Tally(), now_ms + NAP_MS)})

        def on_time(self, key: str, now_ms: int, context: Any, state: Any) -> Effects:
            tally = state.get(key)
            return Effects(None, shelved={key: Shelved(Tally(wakes=tally.wakes + 1), now_ms)})

    task = Task(Role(Insists(), Toy.topics, wide=True))
    task.step(records(fault("1", "n", T0)))
    task.advance(T0 + NAP_MS + 3000)
    assert tally(task).wakes == 4


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 60)), max_size=60), st.integers(0, 40))
def test_the_timer_queue_is_a_table_of_due_times(wishes: list[tuple[str, int | None]], limit: int) -> None:
    wakes = Wakes()
    table: dict[str, int] = {}
    for key, due in wishes:
        wakes.set(key, due)
        table.pop(key, None)
        if due is not None:
            table[key] = due
    fired = []
    assert wakes.soonest_ms() <= min(table.values(), default=NEVER)
    while (first := wakes.first(limit)) is not None:
        fired.append(first)
        wakes.set(first[1], None)
    assert fired == sorted((due, key) for key, due in table.items() if due <= limit)
    assert len(wakes) == sum(due > limit for due in table.values())


def test_a_wake_that_moves_a_million_times_leaves_no_trail() -> None:
    wakes = Wakes()
    for at_ms in range(100_000):
        wakes.set("n", 1_000_000 - at_ms)
    assert len(wakes._heap) < 1_000


# --- surveys -------------------------------------------------------------------------------------------


def surveyed(task: Task) -> list[int]:
    return [s.event.time_ms - T0 for s in task.collect() if isinstance(s.event.data, LaneCensus)]


def test_surveys_run_at_multiples_that_records_pass() -> None:
    task = Task(Role(Toy(survey_every_ms=MINUTE_MS), Toy.topics))
    for record in records(fault("1", "n", T0 + 1), fault("2", "n", T0 + 2 * MINUTE_MS)):
        task.take(record)
    assert surveyed(task) == [MINUTE_MS, 2 * MINUTE_MS]


def test_time_alone_surveys_nothing() -> None:
    task = Task(Role(Toy(survey_every_ms=MINUTE_MS), Toy.topics))
    task.step(records(fault("1", "n", T0)))
    task.advance(T0 + HOUR_MS, surveys=False)
    assert surveyed(task) == []


def test_a_quiet_weekend_is_surveyed_at_its_beginning_and_at_its_end() -> None:
    task = Task(Role(Toy(survey_every_ms=MINUTE_MS), Toy.topics))
    for record in records(fault("1", "n", T0), fault("2", "n", T0 + 62 * HOUR_MS), fault("3", "n", T0 + 62 * HOUR_MS)):
        task.take(record)
    found = surveyed(task)
    assert found == [*(MINUTE_MS * (i + 1) for i in range(MAX_SURVEYS_OF_A_GAP)), 62 * HOUR_MS]


# --- what was done is not done again -------------------------------------------------------------------


def test_what_the_lane_record_says_is_done_is_skipped() -> None:
    lane = LaneRecord(T0, {topics.NODE_EVENTS: 2})
    batch = Task(TOY, lane=lane).step(records(fault("1", "n", T0), fault("2", "n", T0), fault("3", "n", T0)))
    assert said(batch.sent) == ["seen-3", "allocations"]


def test_duplicates_are_counted() -> None:
    task = Task(TOY)
    task.step(records(fault("1", "n", T0), fault("1", "n", T0)))
    assert (tally(task).faults, task.counts.duplicates) == (1, 1)


def test_a_batch_holds_each_changed_key_once_and_the_next_batch_begins_empty() -> None:
    task = Task(TOY)
    batch = task.step(records(fault("1", "n", T0), fault("2", "n", T0)))
    assert batch.changed == {"n": task.states.get("n")}
    assert task.seal().changed == {}


# --- what goes wrong -----------------------------------------------------------------------------------


def test_a_record_that_is_no_event_becomes_one_dead_letter_that_says_where_it_was() -> None:
    raw = b'{"specversion": "1.0", "type": 7'
    batch = Task(TOY).step([Record(topics.NODE_EVENTS, 17, T0, value=raw, key="n", partition=3)])
    (letter,) = letters(batch.sent)
    assert (letter.topic, letter.partition, letter.offset, letter.reason) == (topics.NODE_EVENTS, 3, 17, "not_json")
    assert base64.b64decode(letter.value) == raw
    assert batch.sent[0].key == "n"


def test_a_dead_letter_of_a_recorded_event_names_file_and_line() -> None:
    record = Record(topics.NODE_EVENTS, 5, T0, value=b"[]", file="monday.jsonl", line=812)
    (letter,) = letters(Task(TOY).step([record]).sent)
    assert (letter.offset, letter.headers) == (812, {"file": "monday.jsonl", "line": "812"})


@pytest.mark.parametrize(("size", "whole"), [(160 * 1024, True), (160 * 1024 + 1, False), (300 * 1024, False)])
def test_a_large_dead_letter_keeps_its_beginning_and_its_digest(size: int, whole: bool) -> None:
    raw = b"x" * size
    (letter,) = letters(Task(TOY).step([Record(topics.NODE_EVENTS, 0, T0, value=raw)]).sent)
    assert base64.b64decode(letter.value) == (raw if whole else raw[: 64 * 1024])
    assert letter.sha256 == (None if whole else hashlib.sha256(raw).hexdigest())
    assert len(encode(event_of(letter, source="s", id_="i", time_ms=T0))) < 256 * 1024


def test_a_record_in_another_types_topic_is_a_dead_letter() -> None:
    started = event_of(JobStarted("j", 1), source="launcher/j", id_="1", time_ms=T0)
    assert said(Task(TOY).step(records(started)).sent) == ["unknown_type"]


def test_a_time_more_than_a_day_ahead_is_a_dead_letter_and_moves_nothing() -> None:
    ahead = fault("1", "n", T0 + 2 * DAY_MS, recorded_ms=T0)
    batch = Task(TOY).step(records(ahead))
    assert (said(batch.sent), batch.lane.clock_ms) == (["time_ahead"], T0)


def test_a_failing_record_becomes_a_dead_letter_with_its_traceback_and_leaves_the_state() -> None:
    task = Task(TOY)
    task.step(records(fault("1", "n", T0)))
    before = task.states.get("n")
    batch = task.step(records(fault("2", "n", T0 + 1, BOOM), first=1))
    (letter,) = letters(batch.sent)
    assert letter.reason == "processor_error"
    assert letter.error.startswith("Traceback")
    assert letter.error.rstrip().endswith("ValueError: n went boom")
    assert (task.states.get("n"), batch.changed, task.counts.failures) == (before, {}, 1)


def test_a_failing_wake_is_put_off_one_two_four_minutes_and_at_most_an_hour_or_so() -> None:
    task = Task(TOY)
    task.step(records(fault("1", "n", T0, FAILS_LATER)))
    task.advance(T0 + 8 * HOUR_MS)
    at_min = [(s.event.time_ms - T0 - NAP_MS) // MINUTE_MS for s in task.collect()]
    assert at_min[:8] == [0, 1, 3, 7, 15, 31, 63, 127]
    assert {b - a for a, b in pairwise(at_min[7:])} == {MAX_BACKOFF_MINUTES}


def test_a_wake_that_works_again_is_no_longer_put_off() -> None:
    task = Task(TOY)
    task.step(records(fault("1", "n", T0, FAILS_LATER)))
    task.advance(T0 + NAP_MS)
    task.step(records(fault("2", "n", T0 + NAP_MS), first=1))
    kept = task.states.get("n")
    assert kept is not None
    assert (kept.failures, kept.wake_ms) == (0, T0 + 2 * NAP_MS)


def test_a_processor_that_fails_on_more_than_one_percent_of_a_minute_is_stopped() -> None:
    bad = [fault(f"b{i}", "n", T0, BOOM) for i in range(10)]
    good = [fault(f"g{i}", "n", T0 + 1) for i in range(990)]
    with pytest.raises(ProcessorFailingError, match=r"toy failed .* ValueError: n went boom"):
        Task(TOY).step(records(*good[:989], *bad))
    Task(TOY).step(records(*good, *bad))


def test_a_few_failures_of_a_quiet_minute_stop_nothing() -> None:
    task = Task(TOY)
    task.step(records(*(fault(f"b{i}", "n", T0, BOOM) for i in range(9))))
    assert task.counts.failures == 9


def test_the_minute_before_says_how_many_records_to_expect_of_this_one() -> None:
    good = [fault(f"g{i}", "n", T0) for i in range(1100)]
    bad = [fault(f"b{i}", "n", T0 + MINUTE_MS, BOOM) for i in range(11)]
    Task(TOY).step(records(*good, *bad))
    with pytest.raises(ProcessorFailingError):
        Task(TOY).step(records(*good[:1000], *bad))


# --- context and end -----------------------------------------------------------------------------------


def test_the_context_is_kept_for_the_processor_and_not_shown_to_it_as_an_event() -> None:
    incident = PlatformIncident("i-1", "c1", "storage", "started")
    census = ClusterCensus("c1", T0, 10, 4)
    changes = [ContextChange("c1", T0, incident=incident), ContextChange("c1", T0, census=census)]
    events = [event_of(change, source="s", id_=str(i), time_ms=T0) for i, change in enumerate(changes)]
    batch = Task(TOY).step(records(*events, topic=topics.CONTEXT))
    assert batch.changed == {}
    assert batch.lane.context.incidents["c1/i-1"].what == incident
    assert (batch.lane.context.census, batch.lane.context.blind_until_ms) == ({"c1": census}, {"c1": T0})


def test_at_the_end_every_key_writes_what_it_holds_in_the_order_of_keys() -> None:
    task = Task(TOY)
    task.step(records(fault("1", "b", T0), fault("2", "a", T0)))
    task.finish()
    assert [s.key for s in task.collect()] == ["a", "b"]


def test_states_kept_as_bytes_step_like_states_kept_as_they_are() -> None:
    stored = [fault(str(i), f"n{i % 3}", T0 + i * MINUTE_MS) for i in range(30)]
    plain, encoded = Task(TOY), Task(TOY, states=EncodedStates(KeptCodec(Tally)))
    assert plain.step(records(*stored)) == encoded.step(records(*stored))
    assert list(plain.states.items()) == list(encoded.states.items())


def _held() -> Any:
    return Toy().on_event(fault("1", "n", T0), T0, LaneRecord().context, None).emits[1].data
