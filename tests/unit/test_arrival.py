"""The arrival clock of recordings, and what a record's own clock is worth."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from faultlens.arrival import JUMP_LOOK_AHEAD_RECORDS, LOOK_AHEAD_RECORDS, VOTERS, Entry, arrivals, placed
from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, moment_of, ms_of, parse_moment
from faultlens.codec import Event, event_of
from faultlens.errors import InvalidEventError
from faultlens.events import JobAlive, JobPending, NodeActed, NodeAction, RankExited, Stalled

T0 = parse_moment("2026-11-20T16:00:00Z")


def event(source: str, time_ms: int, *, recorded_ms: int | None = None, sent_ms: int | None = None) -> Event:
    action: NodeAction = "cordon"
    data = NodeActed("n", "c1", action, "ann", planned=True)
    return Event("faultlens.node.action.v1", source, "id", "n", time_ms, data, sent_ms, recorded_ms)


def reports(first_ms: int, count: int, *, recorder_ahead_ms: int = 0) -> list[Event]:
    """What two agents say by turns, every minute."""
    times = [first_ms + n * MINUTE_MS for n in range(count)]
    return [event(f"agent/n{n % 2}", at_ms, recorded_ms=at_ms + recorder_ahead_ms) for n, at_ms in enumerate(times)]


def entry(event: Event | None) -> Entry:
    return Entry("f", 1, b"{}", event)


def clocks(events: list[Event | None]) -> list[int]:
    return [e.arrived_ms for e in arrivals(entry(event) for event in events)]


def put_right(events: list[Event]) -> list[Event]:
    """What is said of arrivals that are not believed, as directly as it can be written."""
    found: list[Event] = []
    for at, this in enumerate(events):
        latest_ms = max((e.recorded_ms for e in found if e.recorded_ms is not None), default=None)
        recorded_ms, following = this.recorded_ms, events[at + 1 : at + 1 + JUMP_LOOK_AHEAD_RECORDS]
        if recorded_ms is not None and (latest_ms is None or recorded_ms > latest_ms + DAY_MS):
            came = [(e.source, e.time_ms if e.recorded_ms is None else e.recorded_ms) for e in following]
            goes_back = [at_ms for _, at_ms in came if at_ms < recorded_ms - DAY_MS]
            confirmed = any(name != this.source and at_ms >= recorded_ms - DAY_MS for name, at_ms in came)
            if goes_back and not confirmed:
                recorded_ms = min(goes_back) if latest_ms is None else latest_ms
        found.append(replace(this, recorded_ms=recorded_ms))
    return found


def by_the_book(events: list[Event]) -> list[int]:
    """The contract's words, as directly as they can be written."""
    found: list[int] = []
    events = put_right(events)
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


# --- arrivals that are not believed ------------------------------------------------------------------------

YEAR_MS = 365 * DAY_MS


def test_one_arrival_a_year_ahead_does_not_take_the_clock_with_it() -> None:
    before, liar, after = (
        reports(T0, 10),
        event("bridge/x", T0 + 10, recorded_ms=T0 + YEAR_MS),
        reports(T0 + HOUR_MS, 5),
    )
    found = list(arrivals(entry(e) for e in [*before, liar, *after]))
    assert [e.arrived_ms for e in found] == [e.recorded_ms for e in (*before, before[-1], *after)]
    assert [e.doubted for e in found] == [False] * 10 + [True] + [False] * 5


def test_the_first_arrival_of_a_recording_is_doubted_like_any_other() -> None:
    after = reports(T0, 5)
    liar = event("bridge/x", T0, recorded_ms=T0 + YEAR_MS)
    assert clocks([liar, *after]) == [T0, *(e.recorded_ms for e in after)]


def test_what_is_a_year_ahead_in_all_its_times_is_processed_with_what_came_before() -> None:
    liar = event("bridge/x", T0 + YEAR_MS - 40, recorded_ms=T0 + YEAR_MS)
    found = list(arrivals(entry(e) for e in [*reports(T0, 10), liar, *reports(T0 + HOUR_MS, 5)]))[10]
    assert found.event is not None
    moved = placed(found.event, arrived_ms=found.arrived_ms, clock_ms=found.arrived_ms)
    assert (moved.time_ms, moved.skewed) == (T0 + 9 * MINUTE_MS - 40, True)


@pytest.mark.parametrize("after", [1, 2, 50])
def test_a_pause_of_weeks_in_a_recording_is_believed_however_little_follows(after: int) -> None:
    said = [*reports(T0, 10), *reports(T0 + 21 * DAY_MS, after)]
    assert clocks(list(said)) == [e.recorded_ms for e in said]


def test_after_a_pause_records_that_were_held_back_do_not_make_it_unbelievable() -> None:
    first, *rest = reports(T0 + 21 * DAY_MS, 10)
    spooled = [event("agent/n7", T0 + n, recorded_ms=T0 + 21 * DAY_MS + n) for n in range(50)]
    assert clocks([*reports(T0, 10), first, *spooled, *rest])[10] == first.recorded_ms


def test_another_source_that_came_as_late_confirms_an_arrival() -> None:
    early, late = reports(T0, 10), event("bridge/x", T0 + YEAR_MS, recorded_ms=T0 + YEAR_MS)
    other = event("bridge/y", T0 + YEAR_MS, recorded_ms=T0 + YEAR_MS - HOUR_MS)
    assert clocks([*early[:5], late, *early[5:], other])[5] == late.recorded_ms
