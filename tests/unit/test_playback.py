"""A recording's time line: its events in order, with the time that passes between and after them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from faultlens.arrival import SKEW_MS, TAIL_MS, End, Entry
from faultlens.codec import Event, event_of
from faultlens.events import NodeFault
from producers.playback import TICK_EVERY_MS, Tick, timeline

T0 = 1_764_000_000_000


def event(at_ms: int) -> Event:
    return event_of(NodeFault("n", "c", "xid", "79", "kmsg"), source="agent/n", id_=str(at_ms), time_ms=at_ms)


def entries(*arrivals: int) -> list[Entry]:
    return [Entry("f", n, b"", event(at_ms), arrived_ms=at_ms) for n, at_ms in enumerate(arrivals)]


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=20))
def test_time_goes_on_tick_by_tick_and_never_back(gaps: list[int]) -> None:
    arrivals = [T0 + sum(gaps[: n + 1]) for n in range(len(gaps))]
    line = list(timeline(entries(*arrivals)))
    assert [what.arrived_ms for what in line if isinstance(what, Entry)] == arrivals
    times = [what.arrived_ms for what in line]
    assert times == sorted(times)
    ticks = [what.arrived_ms for what in line if isinstance(what, Tick)]
    assert [what.after for what in line if isinstance(what, Tick)] == [at_ms > arrivals[-1] for at_ms in ticks]
    assert max(b - a for a, b in pairwise(ticks)) <= TICK_EVERY_MS
    assert ticks[-1] == arrivals[-1] + TAIL_MS


def test_time_goes_on_to_where_it_is_told() -> None:
    assert list(timeline(entries(T0), T0 + 3_600_000))[-1] == Tick(T0 + 3_600_000, after=True)


def test_an_empty_recording_takes_no_time() -> None:
    assert list(timeline([])) == []


def test_a_clock_far_ahead_does_not_put_off_the_end() -> None:
    end = End()
    end.see(Entry("f", 1, b"", event(T0 + SKEW_MS), arrived_ms=T0))
    end.see(Entry("f", 2, b"", event(T0 + 10 * SKEW_MS), arrived_ms=T0 + 1))
    end.see(Entry("f", 3, b"{", None, "not_json", arrived_ms=T0 + 99 * SKEW_MS))
    assert end.at_ms == T0 + SKEW_MS + TAIL_MS
