"""The arrival clock of recordings, and what a record's own clock is worth."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.arrival import LOOK_AHEAD_RECORDS, VOTERS, Entry, arrivals, placed
from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, moment_of, ms_of, parse_moment
from faultlens.codec import Event, event_of
from faultlens.errors import InvalidEventError
from faultlens.events import JobAlive, JobPending, NodeActed, NodeAction, RankExited, Stalled

T0 = parse_moment("2026-11-20T16:00:00Z")


def event(source: str, time_ms: int, *, recorded_ms: int | None = None, sent_ms: int | None = None) -> Event:
    action: NodeAction = "cordon"
    data = NodeActed("n", "c1", action, "ann", planned=True)
    return Event("faultlens.node.action.v1", source, "id", "n", time_ms, data, sent_ms, recorded_ms)


def entry(event: Event | None) -> Entry:
    return Entry("f", 1, b"{}", event)


def clocks(events: list[Event | None]) -> list[int]:
    return [e.arrived_ms for e in arrivals(entry(event) for event in events)]


def by_the_book(events: list[Event]) -> list[int]:
    """The contract's words, as directly as they can be written."""
    found: list[int] = []
    for at, this in enumerate(events):
        votes: dict[str, int] = {}
        for other in events[at : at + LOOK_AHEAD_RECORDS]:
            votes.setdefault(other.source, other.time_ms)
            if len(votes) == VOTERS:
                break
        ordered = sorted(votes.values())
        own = min(this.time_ms, ordered[(len(ordered) - 1) // 2]) if this.recorded_ms is None else this.recorded_ms
        found.append(max([own, *found[-1:]]))
    return found


events = st.builds(
    lambda source, minutes, recorded: event(f"s{source}", T0 + minutes, recorded_ms=recorded and T0 + recorded),
    st.integers(0, 14),
    st.integers(-5_000, 5_000),
    st.none() | st.integers(1, 5_000),
)


@given(st.lists(events, max_size=80))
def test_every_record_arrives_when_the_contract_says(recorded: list[Event]) -> None:
    assert clocks(list(recorded)) == by_the_book(recorded)


@given(st.lists(events | st.none(), max_size=60))
def test_no_clock_goes_back_and_nothing_is_lost(recorded: list[Event | None]) -> None:
    found = list(arrivals(entry(e) for e in recorded))
    assert [e.event for e in found] == recorded
    assert all(a.arrived_ms <= b.arrived_ms for a, b in pairwise(found))


def test_a_quiet_weekend_moves_the_clock() -> None:
    monday = T0 + 62 * HOUR_MS
    assert clocks([event("a", T0), event("b", T0 + 1), event("a", monday), event("b", monday + 1)])[2:] == [
        monday,
        monday + 1,
    ]


def test_one_source_with_a_wrong_clock_does_not_move_it() -> None:
    right = [event(f"s{i % 4}", T0 + i * 1000) for i in range(40)]
    wrong = event("wrong", T0 + 5 * HOUR_MS)
    mixed: list[Event | None] = [*right[:20], wrong, *right[20:]]
    assert max(clocks(mixed)) == T0 + 39_000


def test_a_wrong_clock_first_in_the_file_does_not_move_it_either() -> None:
    assert clocks([event("wrong", T0 + 5 * HOUR_MS), event("a", T0), event("b", T0 + 5)]) == [T0 + 5, T0 + 5, T0 + 5]


def test_lines_that_are_no_events_arrive_with_what_is_around_them() -> None:
    assert clocks([None, event("a", T0), None, event("b", T0 + 9)]) == [T0, T0, T0, T0 + 9]


@given(st.lists(events | st.none(), max_size=60))
def test_lines_that_are_no_events_change_nothing_for_those_that_are(recorded: list[Event | None]) -> None:
    found = [e.arrived_ms for e in arrivals(entry(e) for e in recorded) if e.event is not None]
    assert found == clocks([e for e in recorded if e is not None])


def test_it_looks_no_further_than_it_must() -> None:
    seen = 0

    def source() -> object:
        nonlocal seen
        for number in range(1_000):
            seen += 1
            yield entry(event(f"s{number}", T0 + number))

    next(arrivals(source()))  # type: ignore[arg-type]
    assert seen == VOTERS


def test_one_source_alone_is_looked_at_for_ten_thousand_records_and_no_further() -> None:
    seen = 0

    def source() -> object:
        nonlocal seen
        for number in range(LOOK_AHEAD_RECORDS + 500):
            seen += 1
            yield entry(event("only", T0 + number))

    found = list(zip(arrivals(source()), range(3), strict=False))  # type: ignore[arg-type]
    assert [e.arrived_ms for e, _ in found] == [T0, T0 + 1, T0 + 2]
    assert LOOK_AHEAD_RECORDS <= seen <= LOOK_AHEAD_RECORDS + 3


def test_what_is_up_to_five_minutes_ahead_keeps_its_time() -> None:
    ahead = event("a", T0 + 5 * MINUTE_MS)
    assert placed(ahead, arrived_ms=T0, clock_ms=T0) is ahead


def test_what_is_more_than_five_minutes_ahead_happened_now_and_is_marked() -> None:
    found = placed(event("a", T0 + 5 * MINUTE_MS + 1), arrived_ms=T0, clock_ms=T0)
    assert (found.time_ms, found.skewed) == (T0, True)


def test_what_is_more_than_a_day_ahead_is_refused() -> None:
    assert placed(event("a", T0 + DAY_MS), arrived_ms=T0, clock_ms=T0).skewed
    with pytest.raises(InvalidEventError, match="more than 24 h ahead") as refused:
        placed(event("a", T0 + DAY_MS + 1), arrived_ms=T0, clock_ms=T0)
    assert refused.value.reason == "time_ahead"


def test_what_is_late_keeps_its_time_when_it_was_sent_just_now() -> None:
    spooled = event("a", T0 - 5 * HOUR_MS, sent_ms=T0 - 1)
    assert placed(spooled, arrived_ms=T0, clock_ms=T0) is spooled


@given(st.integers(-400 * DAY_MS, 400 * DAY_MS))
def test_a_senders_wrong_clock_is_taken_out_of_its_times(by_ms: int) -> None:
    told = event("a", T0 - 2000 + by_ms, sent_ms=T0 + by_ms)
    found = placed(told, arrived_ms=T0, clock_ms=T0)
    if abs(by_ms) <= 5 * MINUTE_MS:
        assert found is told
    else:
        assert (found.time_ms, found.sent_ms, found.skewed) == (T0 - 2000, T0, True)
        assert placed(found, arrived_ms=T0, clock_ms=T0) is found


def test_the_limits_apply_to_the_corrected_time() -> None:
    two_days = event("a", T0 + 2 * DAY_MS, sent_ms=T0 + 2 * DAY_MS)
    assert placed(two_days, arrived_ms=T0, clock_ms=T0).time_ms == T0


@pytest.mark.parametrize(
    ("data", "moment"),
    [
        (RankExited("j", 1, 0, "n", first_error_at=moment_of(T0 - 7200_000)), lambda d: d.first_error_at),
        (JobAlive("j", 1, 60.0, Stalled(moment_of(T0 - 7200_000))), lambda d: d.stalled.since),
        (JobPending("j", "Priority", moment_of(T0 - 7200_000)), lambda d: d.since),
    ],
)
def test_moments_inside_the_data_are_corrected_with_the_time(data: object, moment: object) -> None:
    told = event_of(data, source="launcher/j", id_="1", time_ms=T0 - 7200_000)  # type: ignore[arg-type]
    told = Event(told.type, told.source, "1", "j", told.time_ms, told.data, sent_ms=T0 - 7200_000)
    found = placed(told, arrived_ms=T0, clock_ms=T0)
    assert ms_of(moment(found.data)) == T0  # type: ignore[operator]


def test_times_that_no_calendar_holds_are_refused_and_stop_nothing() -> None:
    pending = JobPending("j", "Priority", moment_of(ms_of(moment_of(T0))))
    told = Event("faultlens.job.pending.v1", "s", "1", "j", T0, pending, sent_ms=T0 + 5000 * 366 * DAY_MS)
    with pytest.raises(InvalidEventError) as refused:
        placed(told, arrived_ms=T0, clock_ms=T0)
    assert refused.value.reason == "bad_value"
